import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

// Series is one line of a chart. Its color is a custom property of the style sheet.
export interface Series {
  label: string;
  color: string;
  values: number[];
}

// Chart draws lines over time. For screen readers it is an image with a summary.
export function Chart({ times, series, summary }: { times: number[]; series: Series[]; summary: string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const data = [times, ...series.map((s) => s.values)] as uPlot.AlignedData;
  useEffect(() => {
    const el = box.current!;
    const draw = () => {
      plot.current?.destroy();
      const style = getComputedStyle(el);
      const color = (name: string) => style.getPropertyValue(name).trim();
      const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
      plot.current = new uPlot(
        {
          width: el.clientWidth,
          height: 180,
          series: [{}, ...series.map((s) => ({ label: s.label, stroke: color(s.color), width: 2, points: { show: false } }))],
          axes: [
            // The labels have no seconds.
            { ...axis, incrs: [60, 300, 600, 900], values: (_u, splits) => splits.map((s) => new Date(s * 1000).toTimeString().slice(0, 5)) },
            { ...axis, size: 56 },
          ],
          scales: { y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.1)] } },
          cursor: { drag: { x: false, y: false } },
        },
        data,
        el,
      );
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: el.clientWidth, height: 180 }));
    resized.observe(el);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    document.addEventListener("berth-theme", draw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", draw);
      document.removeEventListener("berth-theme", draw);
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [times, ...series.map((s) => s.values)]);
  return <div class="chart" ref={box} role="img" aria-label={summary} />;
}
