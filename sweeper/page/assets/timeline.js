"use strict";
/* When the trials ran, in lanes: trials that ran at the same time are in different lanes. Below the
   lanes, how much GPU memory the trials used together. */

{
  const hasMemory = () => sweeper.data.all.some((t) => t.gpu_peak_bytes !== undefined);
  let lanes = 1;

  const STATES = {
    completed: "#2a9d6f", pruned: "#8d99a6", failed: "#d1495b", stopped: "#c9a227", running: "#3b82c4",
    frozen: "#7fb2dd",
  };

  /* Assign each trial to the first free lane. Trials that ran at the same time have different lanes. */
  function arranged() {
    const ran = sweeper.data.all
      .filter((t) => t.started_at_s > 0)
      .map((t) => ({ trial: t, from: t.started_at_s, to: Math.max(t.started_at_s, sweeper.end_s(t)), lane: 0 }))
      .sort((a, b) => a.from - b.from);
    const ends = [];
    for (const item of ran) {
      let lane = ends.findIndex((end) => end <= item.from + 0.05);
      if (lane < 0) lane = ends.length;
      ends[lane] = item.to;
      item.lane = lane;
    }
    return { ran, lanes: Math.max(1, ends.length) };
  }

  /* Return the peaks of GPU memory, added up over the trials that ran at a time: points [ms, GB]. */
  function memory(ran) {
    const known = ran.filter(({ trial }) => trial.gpu_peak_bytes !== undefined);
    const changes = known.flatMap(({ trial, from, to }) => [
      [from, trial.gpu_peak_bytes / 1e9], [to, -trial.gpu_peak_bytes / 1e9],
    ]).sort((a, b) => a[0] - b[0]);
    let sum = 0;
    return changes.map(([at, change]) => [at * 1000, Math.max(0, (sum += change))]);
  }

  function option() {
    const { ran } = arranged();
    const colours = sweeper.colours();
    const height = Math.min(420, 20 * lanes + 20);
    const lower = hasMemory();
    const time = (index) => sweeper.axis("", {
      type: "time", gridIndex: index, scale: false, splitLine: { show: false },
      axisLabel: { formatter: null, hideOverlap: true },
      min: ran.length ? ran[0].from * 1000 : undefined,
      max: ran.length ? Math.max(...ran.map((item) => item.to)) * 1000 : undefined,
    });
    return {
      grid: [
        { left: 46, right: 14, top: 8, height },
        ...(lower ? [{ left: 46, right: 14, top: height + 52, height: 80 }] : []),
      ],
      xAxis: lower ? [time(0), time(1)] : [time(0)],
      yAxis: [
        sweeper.axis("slot", {
          type: "category", data: Array.from({ length: lanes }, (_, i) => String(i + 1)),
          splitLine: { show: false }, axisLabel: { formatter: null, hideOverlap: true },
        }),
        ...(lower ? [sweeper.axis("GPU memory [GB]", { gridIndex: 1, nameGap: 34, min: 0, splitNumber: 2 })] : []),
      ],
      dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl", xAxisIndex: lower ? [0, 1] : [0] }],
      series: [
        {
          type: "custom", encode: { x: [0, 1], y: 2 }, progressive: 0,
          renderItem(params, api) {
            const [from, to] = [0, 1].map((i) => api.coord([api.value(i), api.value(2)]));
            const thick = api.size([0, 1])[1] * 0.7;
            const shape = echarts.graphic.clipRectByRect(
              { x: from[0], y: from[1] - thick / 2, width: Math.max(1.5, to[0] - from[0]), height: thick },
              params.coordSys,
            );
            return shape && { type: "rect", shape, style: api.style() };
          },
          data: ran.map(({ trial, from, to, lane }) => ({
            value: [from * 1000, to * 1000, lane], run_id: trial.run_id,
            itemStyle: {
              color: STATES[trial.state] || "grey", opacity: sweeper.isChosen(trial) ? 1 : 0.2,
              borderColor: colours.ground, borderWidth: ran.length > 300 ? 0 : 1,
            },
          })),
        },
        ...(lower ? [{
          type: "line", step: "end", showSymbol: false, silent: true, xAxisIndex: 1, yAxisIndex: 1,
          data: memory(ran), areaStyle: { opacity: 0.2, color: colours.accent },
          lineStyle: { width: 1, color: colours.accent },
        }] : []),
      ],
    };
  }

  const rows = () => arranged().ran.map(({ trial, from, to, lane }) =>
    [trial.run_id, trial.state, from, to, lane + 1, trial.gpu_peak_bytes, trial.gpu_busy_share]);

  sweeper.chart({
    id: "timeline", option,
    isEmpty: () => arranged().ran.length === 0,
    csv: () => [["run", "state", "began_s", "ended_s", "slot", "gpu_peak_bytes", "gpu_busy_share"], ...rows()],
    height: () => {
      ({ lanes } = arranged());
      return Math.min(420, 20 * lanes + 20) + 42 + (hasMemory() ? 130 : 0);
    },
  });
}
