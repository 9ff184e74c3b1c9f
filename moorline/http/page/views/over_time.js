// The last ten minutes as lines: throughput, how time was spent, and how far behind.

import { html, useEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { usePolled } from "../data.js";
import { count, duration, rate, share } from "../format.js";
import { Card, Empty, Name, Trouble } from "../parts.js";

const LINES = ["#2f7fd1", "#d4812a", "#2a9d8f", "#b04a92", "#7a6fd0", "#b09a12", "#8d5b43", "#64748b"];

const CHARTS = [
  { figure: "records_in_per_second", title: "Records in", show: rate },
  { figure: "records_out_per_second", title: "Records out", show: rate },
  { figure: "busy", title: "Busy", show: share, top: 1 },
  { figure: "back_pressured", title: "Back-pressured", show: share, top: 1 },
  { figure: "watermark_lag_ms", title: "Watermark lag", show: duration },
  { figure: "records_behind", title: "Records behind", show: count },
];

export function OverTime() {
  const { data, error } = usePolled("/v1/series", 2000);
  const [only, setOnly] = useState("");
  if (!data) return html`<${Trouble} error=${error} />`;
  const uids = Object.keys(data.operators);
  if (data.time_ms.length < 2) return html`<${Empty}>Lines begin after some seconds of work.<//>`;
  const shown = only && uids.includes(only) ? [only] : uids.slice(0, LINES.length);
  const has = (figure) => shown.some((uid) => data.operators[uid][figure]?.some((v) => v !== null));
  return html`
    <div class="chips" role="group" aria-label="Operators">
      ${uids.slice(0, 60).map((uid, n) => html`<button key=${uid} type="button" class="chip" aria-pressed=${only === uid} onClick=${() => setOnly(only === uid ? "" : uid)}>
        <i class="dot" style=${{ background: LINES[n % LINES.length] }}></i><${Name} of=${uid} /></button>`)}
      ${uids.length > LINES.length && !only ? html`<small class="soft">The first ${LINES.length} are drawn; choose one to see it.</small>` : null}
    </div>
    <div class="charts">
      ${CHARTS.filter((c) => has(c.figure)).map((c) => html`<${Card} key=${c.figure} title=${c.title}>
        <${Chart} chart=${c} times=${data.time_ms} uids=${shown} all=${uids} operators=${data.operators} /><//>`)}
    </div>`;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  return { ink: style.getPropertyValue("--soft").trim(), line: style.getPropertyValue("--line").trim() };
}

/** Times of day on an axis; with seconds where it is short. */
function clock(u, ticks) {
  const short = ticks.length > 1 && ticks[1] - ticks[0] < 60;
  return ticks.map((t) => new Date(t * 1000).toTimeString().slice(0, short ? 8 : 5));
}

function useDark() {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

function Chart({ chart, times, uids, all, operators }) {
  const element = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const dark = useDark();
  const columns = [times.map((t) => t / 1000), ...uids.map((uid) => operators[uid][chart.figure])];
  const newest = useRef(columns);
  newest.current = columns;
  useEffect(() => {
    const { ink, line } = colours();
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
    const options = {
      width: element.current.clientWidth || 400,
      height: 190,
      padding: [10, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (u, low, high) => [0, chart.top || (high > 0 ? high * 1.08 : 1)] } },
      axes: [{ ...axis, values: clock, space: 80, size: 30 }, { ...axis, size: 62, values: (u, ticks) => ticks.map(chart.show) }],
      series: [{}, ...uids.map((uid) => ({ stroke: LINES[all.indexOf(uid) % LINES.length], width: 1.6, points: { show: false }, spanGaps: false }))],
      hooks: { setCursor: [(u) => setAt(u.cursor.idx ?? null)] },
    };
    plot.current = new window.uPlot(options, newest.current, element.current);
    const watch = new ResizeObserver(([entry]) => plot.current?.setSize({ width: Math.max(200, entry.contentRect.width), height: 190 }));
    watch.observe(element.current);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [uids.join("\n"), dark]);
  useEffect(() => {
    plot.current?.setData(columns);
  }, [times, uids.join("\n")]);
  const index = at === null || at >= times.length ? times.length - 1 : at;
  const said = uids.map((uid) => `${uid} ${chart.show(operators[uid][chart.figure][times.length - 1])}`).join(", ");
  return html`<div class="plot" ref=${element} role="img" aria-label=${`${chart.title}, now: ${said}`}></div>
    <p class="values">${uids.map((uid) => html`<span key=${uid}><i class="dot" style=${{ background: LINES[all.indexOf(uid) % LINES.length] }}></i><${Name} of=${uid} /> <b>${chart.show(operators[uid][chart.figure][index])}</b></span>`)}</p>`;
}
