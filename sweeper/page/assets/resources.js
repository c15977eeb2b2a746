"use strict";
/* GPU memory and duration of the trials. */

{
  const usable = () => sweeper.data.all.filter((t) => t.gpu_peak_bytes !== undefined && t.duration_s > 0);

  function option() {
    const trials = usable();
    const { memory, duration } = sweeper.columns;
    const [x, y] = [duration, memory].map((column) => sweeper.goalScale(trials, column.of));
    return {
      grid: sweeper.grid,
      xAxis: sweeper.roundAxis("duration [s]", x.low, x.high, { nameGap: 26 }),
      yAxis: sweeper.roundAxis(memory.name, y.low, y.high),
      series: {
        type: "scatter", symbolSize: 7,
        data: sweeper.layered(trials).map((t) =>
          sweeper.point(t, [x.at(duration.of(t)), y.at(memory.of(t))],
            x.isCut(duration.of(t)) || y.isCut(memory.of(t)))),
      },
    };
  }

  sweeper.chart({ id: "memory", option, isEmpty: () => usable().length === 0 });
}
