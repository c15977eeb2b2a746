"""Small notebooks of our own: libraries that show something, as `foreign.py --libraries` runs them.

Each comes in two forms, which differ in what comes before the first cell that depends on x: import,
display and enough work that the cells are worth sharing, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from foreign_notebooks import Foreign

#: By library: the modules it needs, its import, a cell that shows something, and one that shows
#: something of `x`.
_ROWS: dict[str, tuple[Sequence[str], str, str, str]] = {
    "plotly": (
        ["plotly"],
        "import plotly.graph_objects as go",
        "go.Figure(go.Scatter(y=[1, 2, 3])).show()",
        "import plotly.io\nfigure = go.Figure(go.Scatter(y=[1, x, 3]))\nfigure.show()\n"
        "print(plotly.io.renderers.default)\nfigure",
    ),
    "plotly.express": (
        ["plotly", "pandas"],
        "import plotly.express as px",
        "px.bar(x=['a', 'b'], y=[1, 2]).show()",
        "px.line(y=[x, 2.0, 3.0])",
    ),
    "ipywidgets": (
        ["ipywidgets"],
        "import ipywidgets",
        "slider = ipywidgets.IntSlider(3)\nslider",
        "display(ipywidgets.VBox([ipywidgets.Label(str(x)), ipywidgets.FloatText(x)]))\n"
        "out = ipywidgets.Output()\nwith out: print('inside', x)\nout",
    ),
    "ipywidgets.interact": (
        ["ipywidgets"],
        "from ipywidgets import interact",
        "_ = interact(lambda n=1: print('n', n), n=(0, 3))",
        "_ = interact(lambda n=1: print('n', n * x), n=(0, 3))",
    ),
    "tqdm.notebook": (
        ["ipywidgets", "tqdm"],
        "from tqdm.notebook import tqdm",
        "for _ in tqdm(range(3)): pass",
        "for _ in tqdm(range(3), desc=str(x)): pass",
    ),
    "tqdm.auto": (
        ["tqdm"],
        "from tqdm.auto import tqdm, trange",
        "for _ in trange(3): pass",
        "for i in tqdm(range(3), desc=str(x)): print(i)\ntype(tqdm(range(1), disable=True)).__module__",
    ),
    "tqdm": (
        ["tqdm"],
        "from tqdm import tqdm",
        "for _ in tqdm(range(3)): pass",
        "for i in tqdm(range(3), desc=str(x)):\n    print(i); display(i)",
    ),
    "panel": (
        ["panel"],
        "import panel as pn\npn.extension()",
        "pn.pane.Markdown('# title')",
        "pn.Column(f'x is {x}', pn.widgets.FloatSlider(value=x))",
    ),
    "altair": (
        ["altair", "pandas"],
        "import altair as alt\nimport pandas as pd",
        "alt.Chart(pd.DataFrame({'a': [1, 2], 'b': [1, 2]})).mark_line().encode(x='a', y='b')",
        "alt.Chart(pd.DataFrame({'a': [1, 2], 'b': [1, x]})).mark_bar().encode(x='a', y='b')",
    ),
    "holoviews": (
        ["holoviews", "bokeh"],
        "import holoviews as hv\nhv.extension('bokeh')",
        "hv.Curve([1, 2, 3])",
        "hv.Scatter([1, x, 3])",
    ),
    "bokeh": (
        ["bokeh"],
        "from bokeh.io import output_notebook, show\nfrom bokeh.plotting import figure\noutput_notebook()",
        "plot = figure(width=200, height=200); plot.line([1, 2], [1, 2]); show(plot)",
        "plot = figure(width=200, height=200); plot.line([1, 2], [1, x]); show(plot)",
    ),
    "seaborn": (
        ["seaborn"],
        "import seaborn as sns\nsns.set_theme()",
        "sns.lineplot(x=[1, 2], y=[1, 2])",
        "sns.histplot([1, 2, 2, x])",
    ),
    "matplotlib": (
        ["matplotlib"],
        "import matplotlib.pyplot as plt",
        "plt.plot([1, 2]); plt.title('leading')",
        "for i in range(2):\n    print(i); plt.plot([i, x]); plt.show()\n"
        "fig, ax = plt.subplots(); ax.bar([1], [x]); display(fig); plt.close()\nplt.get_backend()",
    ),
    "matplotlib, as in the first cell": (
        ["matplotlib"],
        "%matplotlib inline\n%config InlineBackend.figure_format = 'retina'\n"
        "import matplotlib.pyplot as plt\nplt.rcParams['figure.figsize'] = 2, 1",
        "plt.plot([1, 2])",
        "plt.plot([1, x])",
    ),
    "rich": (
        ["rich"],
        "import rich\nfrom rich.progress import track\nfrom rich.table import Table",
        "rich.print('[bold]leading[/bold]')",
        "table = Table('a', 'b'); table.add_row('1', str(x)); rich.print(table)\n"
        "rich.get_console().is_jupyter",
    ),
    "rich.progress": (
        ["rich"],
        "from rich.progress import track",
        "for _ in track(range(3)): pass",
        "for _ in track(range(3), description=str(x)): pass",
    ),
    "fastprogress": (
        ["fastprogress"],
        "from fastprogress import master_bar, progress_bar",
        "for _ in progress_bar(range(3)): pass",
        "bar = master_bar(range(2))\nfor i in bar:\n"
        "    for _ in progress_bar(range(2), parent=bar): pass\n    bar.write(f'{i} {x}')",
    ),
    "wandb": (
        ["wandb"],
        "import os\nos.environ['WANDB_MODE'] = 'offline'\nos.environ['WANDB_SILENT'] = 'true'\nimport wandb",
        "wandb.Table(columns=['a'], data=[[1]])",
        "run = wandb.init(project='own', config={'x': x})\nrun.log({'loss': x})\nrun.finish()\n"
        "from wandb.sdk.lib.ipython import in_jupyter\nin_jupyter()",
    ),
    "pandas": (
        ["pandas"],
        "import pandas as pd\npd.options.display.max_rows = 4",
        "pd.DataFrame({'a': range(9)})",
        "print(pd.options.display.max_columns); display(pd.DataFrame([[x] * 15]))\n"
        "pd.DataFrame({'a': [x, 2.0]}).style.highlight_max()",
    ),
    "sklearn": (
        ["sklearn"],
        "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\n"
        "from sklearn.svm import SVC",
        "make_pipeline(StandardScaler(), SVC())",
        "make_pipeline(StandardScaler(), SVC(C=x + 1))",
    ),
    "IPython.display": (
        [],
        "from IPython.display import HTML, Javascript, Markdown, clear_output, display",
        "display(HTML('<b>1</b>'), Markdown('# a')); h = display('first', display_id=True)",
        "print('a'); display(Javascript('1')); print('b'); h2 = display(x, display_id=True); h2.update(2 * x)\n"
        "for i in range(3):\n    clear_output(wait=True); print(i, x)",
    ),
    "a seed before an import": (
        ["sklearn"],
        "import random\nrandom.seed(1337)",
        "from sklearn.datasets import make_moons",
        "print(random.random(), x)",
    ),
}


#: Seconds of work on one core, so that running it once for all trials saves something.
_WORK = "sum(n * n for n in range(10_000_000))"


def _forms() -> Sequence[Foreign]:
    forms = [
        Foreign(
            repo="own",
            path=f"{name}, {form}.ipynb",
            space={"x": {"low": 0.0, "high": 1.0}},
            cells=cells,
            needs=needs,
            score="x",
        )
        for name, (needs, import_, leading, later) in _ROWS.items()
        for form, cells in (
            ("first", (import_, leading, _WORK, later)),
            ("after x", (f"print(x)\n{import_}", leading, later)),
        )
    ]
    return sorted(forms, key=lambda foreign: foreign.path.endswith("after x.ipynb"))


LIBRARIES: Sequence[Foreign] = _forms()
