"""Make the view with which MLflow's UI opens an experiment: columns, order and charts.

MLflow stores views that users share in tags of the experiment, in an undocumented format.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

from ..settings.addresses import Address
from ..settings.sections import Objective
from ..settings.space import SearchSpace
from .values import STUDY_ID_TAG, legal, log10_name, now_ms

_KEY = "sweeper"
#: Tag of the experiment that contains the view.
VIEW_TAG = f"mlflow.sharedViewState.{_KEY}"
_NAME = "Sweep: parallel coordinates"
_SECTION = "sweeper"
#: The UI draws at most this many runs.
_MOST_RUNS = 1000
_CHART_HEIGHT = 450


def view_of(space: SearchSpace, objectives: Mapping[str, Objective], *, study_id: str) -> str:
    """Return the value of the tag `VIEW_TAG`: the view of a study, as JSON.

    The view shows the study's trials, without earlier attempts and without nested runs of
    notebooks. Runs are sorted by the first objective, and parallel coordinates are drawn over the
    params. A param on a logarithmic scale is replaced by its logarithm, because MLflow has no
    logarithmic axes. Params that exist in some trials only are left out, because MLflow may not
    draw trials that lack one.

    Args:
        space: Search space of the study.
        objectives: Objectives, by the names of their scores.
        study_id: Id of the study.
    """
    params = []
    for name, dimension in space.items():
        if not dimension.when:
            params.append(log10_name(name) if name in space.log_names else name)
    metrics = [legal(name) for name in objectives]
    chart = {
        "uuid": "sweeper-parallel-coordinates",
        "type": "PARALLEL",
        "metricSectionId": _SECTION,
        "deleted": False,
        "isGenerated": False,
        "runsCountToCompare": _MOST_RUNS,
        "selectedParams": params,
        "selectedMetrics": metrics,
        "showAllRuns": True,
        "displayName": "Parallel coordinates",
    }
    section = {
        "uuid": _SECTION,
        "name": "Sweep",
        "display": True,
        "isReordered": False,
        "deleted": False,
        "isGenerated": False,
        "columns": 1,
        "cardHeight": _CHART_HEIGHT,
    }
    state = {
        "searchFilter": f"tags.`{STUDY_ID_TAG}` = '{study_id}'",
        "orderByKey": f"metrics.`{metrics[0]}`",
        "orderByAsc": next(iter(objectives.values())).direction == "minimize",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [
            *(f"metrics.`{name}`" for name in metrics),
            *(f"params.`{name}`" for name in space),
        ],
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": [chart],
        "compareRunSections": [section],
        "isAccordionReordered": False,
        "autoRefreshEnabled": True,
        "useGroupedValuesInCharts": True,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    at_ms = now_ms()
    view = {"name": _NAME, "createdAt": at_ms, "updatedAt": at_ms, "state": f"deflate;{packed}"}
    return json.dumps(view)


def view_url(address: Address, experiment_id: str, *, ui: str) -> str:
    """Return the URL of an experiment with its view, which draws parallel coordinates of its runs.

    Args:
        address: Address of MLflow's store or server.
        experiment_id: MLflow's id of the experiment.
        ui: URL of a UI on this machine, for a store that is not a server.
    """
    base = address.bare.rstrip("/") if address.is_http else ui
    return (
        f"{base}/#/experiments/{experiment_id}/runs?viewStateShareKey={_KEY}"
        "&workflowType=machine_learning&compareRunsMode=CHART"
    )
