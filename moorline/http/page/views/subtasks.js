// One chain of operators, subtask by subtask: who has more to do than the others, and who waits.

import { html, useState } from "../vendor/htm-preact.js";
import { bytes, count, duration, printable, rate, share, time } from "../format.js";
import { mood, skew } from "../graph.js";
import { Card, Empty, HotKeys, Meter, Name, Stat, Table } from "../parts.js";

const FIGURES = {
  records_in_per_second: { title: "records in", show: rate },
  records_out_per_second: { title: "records out", show: rate },
  busy: { title: "busy", show: share },
  back_pressured: { title: "back-pressured", show: share },
  keys: { title: "keys", show: count },
  in_flight_bytes: { title: "in flight", show: bytes },
};

export function Subtasks({ page, metrics, argument, go }) {
  const vertices = metrics?.vertices || [];
  const [figure, setFigure] = useState("records_in_per_second");
  const vertex = vertices.find((v) => String(v.id) === argument) || vertices[0];
  if (!vertex) return html`<${Empty}>No attempt has run yet.<//>`;
  const uneven = skew(vertex.subtasks);
  const hot = vertex.operators.flatMap(({ uid }) => (metrics.operators[uid]?.hot_keys || []).slice(0, 5).map((k) => ({ uid, shown: k.key, ...k })));
  const slowest = vertex.subtasks.reduce((a, s) => (a.busy >= s.busy ? a : s), vertex.subtasks[0]);
  return html`
    <nav class="chips" aria-label="Steps">
      ${vertices.map((v) => html`<a key=${v.id} href=${`#/subtasks/${v.id}`} class=${`chip ${mood(v)}`} aria-current=${v.id === vertex.id ? "true" : null}>
        <${Name} of=${v.operators.map((o) => o.uid).join(" → ")} /></a>`)}
    </nav>
    <dl class="stats">
      <${Stat} title="Subtasks" value=${vertex.parallelism} note=${`${vertex.subtasks.filter((s) => s.is_running).length} run`} />
      <${Stat} title="In" value=${rate(vertex.records_in_per_second)} note=${`${bytes(vertex.bytes_in_per_second)}/s`} />
      <${Stat} title="Out" value=${rate(vertex.records_out_per_second)} note=${`${bytes(vertex.bytes_out_per_second)}/s`} />
      <${Stat} title="Skew" value=${`${uneven.toFixed(2)}×`} tone=${uneven >= 1.5 ? "warn" : ""} note="most records of one, by the average" />
      <${Stat} title="Busiest" value=${share(slowest.busy)} note=${`subtask ${slowest.index}`} />
      <${Stat} title="In flight" value=${bytes(vertex.in_flight_bytes)} note=${`${bytes(vertex.blocked_bytes)} put aside`} />
    </dl>
    <${Card} title="Spread" aside=${html`<label class="inline">by <select value=${figure} onChange=${(e) => setFigure(e.target.value)}>
      ${Object.entries(FIGURES).map(([id, f]) => html`<option key=${id} value=${id}>${f.title}</option>`)}</select></label>`}>
      <${Spread} subtasks=${vertex.subtasks} figure=${figure} />
    <//>
    ${hot.length ? html`<${Card} title="Hottest keys" flush=${true} aside=${html`<small class="soft">about, from a sample of the last minute’s records</small>`}><${HotKeys} rows=${hot} /><//>` : null}
    <${Card} title="Subtasks" flush=${true}><${Rows} vertex=${vertex} /><//>
    <${Operators} vertex=${vertex} />`;
}

/** A bar for every subtask, with the average as a line: skew is seen before it is read. */
function Spread({ subtasks, figure }) {
  const { title, show } = FIGURES[figure];
  const values = subtasks.map((s) => s[figure]);
  const most = Math.max(...values, figure === "busy" || figure === "back_pressured" ? 1 : 0) || 1;
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const width = 1000 / values.length;
  const gap = values.length > 120 ? 0 : Math.min(4, width * 0.2);
  return html`<svg class="spread" viewBox="0 0 1000 120" preserveAspectRatio="none" role="img"
      aria-label=${`${title}: from ${show(Math.min(...values))} to ${show(Math.max(...values))}, on average ${show(mean)}`}>
      ${values.map((v, n) => html`<rect key=${n} x=${n * width + gap / 2} width=${Math.max(0.5, width - gap)} y=${120 - (v / most) * 116}
        height=${Math.max(0.5, (v / most) * 116)} class=${v > 1.5 * mean ? "hot" : ""}><title>subtask ${n}: ${show(v)}</title></rect>`)}
      <line x1="0" x2="1000" y1=${120 - (mean / most) * 116} y2=${120 - (mean / most) * 116} />
    </svg>
    <p class="scale"><span>subtask 0</span><span>average ${show(mean)}, most ${show(Math.max(...values))}</span><span>${values.length - 1}</span></p>`;
}

function Rows({ vertex }) {
  const lag = (s) => s.operators.map((o) => o.watermark_lag_ms).filter((l) => l !== null).reduce((a, b) => Math.max(a, b), -Infinity);
  const columns = [
    { title: "subtask", num: true, get: (s) => s.index },
    { title: "busy · back-pressured", get: (s) => s.busy + s.back_pressured, show: (s) => html`<${Meter} busy=${s.busy} held=${s.back_pressured} />` },
    { title: "in", num: true, get: (s) => s.records_in_per_second, show: (s) => rate(s.records_in_per_second) },
    { title: "out", num: true, get: (s) => s.records_out_per_second, show: (s) => rate(s.records_out_per_second) },
    { title: "records", num: true, get: (s) => s.records_in, show: (s) => count(s.records_in) },
    { title: "keys", num: true, get: (s) => s.keys, show: (s) => (s.keys ? count(s.keys) : "") },
    { title: "lag", num: true, get: lag, show: (s) => (Number.isFinite(lag(s)) ? duration(lag(s)) : "") },
    { title: "memory", num: true, get: (s) => s.process.rss_bytes, show: (s) => (s.process.rss_bytes ? bytes(s.process.rss_bytes) : "–") },
    { title: "GC", num: true, get: (s) => s.process.gc_ms, show: (s) => duration(s.process.gc_ms || 0) },
    { title: "place", get: (s) => s.host, show: (s) => html`<span class="soft"><${Name} of=${s.host || "–"} />${s.pid ? ` · ${s.pid}` : ""}</span>` },
    { title: "", show: (s) => (s.stalled_ms ? html`<span class="warn-text" title=${printable(s.stalled_at)}>stalled ${duration(s.stalled_ms)}</span>` : s.is_running ? "" : html`<span class="soft">starting</span>`) },
  ];
  return html`<${Table} label="Subtasks" columns=${columns} rows=${vertex.subtasks} keyOf=${(s) => s.index} />`;
}

/** The operators of the chain, each with the spread of its watermark and with what users measure. */
function Operators({ vertex }) {
  const uids = vertex.operators.map((o) => o.uid);
  const rows = uids.map((uid) => {
    const parts = vertex.subtasks.flatMap((s) => s.operators.filter((o) => o.uid === uid));
    const marks = parts.map((o) => o.watermark).filter((w) => w !== null && w !== undefined);
    const sum = (name) => parts.reduce((total, o) => total + (o[name] || 0), 0);
    const metrics = Object.create(null);
    for (const part of parts) for (const [name, metric] of Object.entries(part.metrics || {})) metrics[name] = (metrics[name] || 0) + (metric.value || metric.count || 0);
    const counters = Object.create(null);
    for (const part of parts) for (const [name, n] of Object.entries(part.counters || {})) counters[name] = (counters[name] || 0) + n;
    return { uid, marks, keys: sum("keys"), timers: sum("timers"), late: sum("late_records"), splits: parts.reduce((n, o) => n + Object.keys(o.splits || {}).length, 0), own: { ...counters, ...metrics } };
  });
  const columns = [
    { title: "operator", get: (r) => r.uid, show: (r) => html`<${Name} of=${r.uid} />` },
    { title: "watermark", get: (r) => Math.min(...r.marks), show: (r) => (r.marks.length ? time(Math.min(...r.marks)) : html`<span class="soft">–</span>`) },
    { title: "apart", num: true, get: (r) => Math.max(...r.marks) - Math.min(...r.marks), show: (r) => (r.marks.length > 1 ? duration(Math.max(...r.marks) - Math.min(...r.marks)) : "") },
    { title: "keys", num: true, get: (r) => r.keys, show: (r) => count(r.keys) },
    { title: "timers", num: true, get: (r) => r.timers, show: (r) => count(r.timers) },
    { title: "late", num: true, get: (r) => r.late, show: (r) => count(r.late) },
    { title: "splits", num: true, get: (r) => r.splits, show: (r) => count(r.splits) },
    { title: "metrics", show: (r) => Object.entries(r.own).slice(0, 12).map(([name, n]) => html`<span key=${name} class="tag"><${Name} of=${name} /> ${count(n)}</span>`) },
  ];
  return html`<${Card} title="Operators in this step" flush=${true}><${Table} label="Operators in this step" columns=${columns} rows=${rows} keyOf=${(r) => r.uid} /><//>`;
}
