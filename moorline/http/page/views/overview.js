// The first view: a few figures, the graph, and a line for every operator.

import { html } from "../vendor/htm-preact.js";
import { bytes, count, duration, many, printable, rate, share, time } from "../format.js";
import { JobGraph } from "../graph.js";
import { Card, Empty, Meter, Name, Stat, Table } from "../parts.js";

export function Overview({ page, metrics, go }) {
  const graph = page.graph;
  return html`
    <${Figures} graph=${graph} metrics=${metrics} />
    <${Card} title="Job graph" aside=${html`<${Legend} />`}>
      <${JobGraph} graph=${graph} metrics=${metrics} onChoose=${(id) => go(`subtasks/${id}`)} />
    <//>
    <${Card} title="Operators" flush=${true}><${Operators} graph=${graph} metrics=${metrics} go=${go} /><//>`;
}

function Legend() {
  return html`<span class="legend"><i class="is-busy"></i>busy <i class="is-held"></i>back-pressured <i class="is-idle"></i>idle</span>`;
}

function Figures({ graph, metrics }) {
  const vertices = metrics?.vertices || [];
  const targets = new Set(graph.links.filter((l) => !l.feedback).map((l) => l.target));
  const sources = vertices.filter((v) => !targets.has(v.id));
  const read = sources.reduce((sum, v) => sum + v.records_in_per_second, 0);
  const total = sources.reduce((sum, v) => sum + v.records_in, 0);
  const worst = vertices.reduce((a, v) => (a && a.most_back_pressured >= v.most_back_pressured ? a : v), null);
  const busiest = vertices.reduce((a, v) => (a && a.most_busy >= v.most_busy ? a : v), null);
  const operators = Object.values(metrics?.operators || {});
  const lags = operators.map((o) => o.watermark_lag_ms).filter((lag) => lag !== null);
  const behind = operators.map((o) => o.records_behind).filter((n) => n !== null && n !== undefined);
  const c = metrics?.checkpoints;
  const failed = Object.values(c?.failed || {}).reduce((a, b) => a + b, 0);
  const name = (v) => (v ? v.operators[0].uid : "");
  return html`<dl class="stats">
    <${Stat} title="Read" value=${metrics ? rate(read) : "–"} note=${`${count(total)} in this attempt`} />
    <${Stat} title="Busiest step" value=${busiest ? share(busiest.most_busy) : "–"} note=${html`<${Name} of=${name(busiest)} />`} />
    <${Stat} title="Back-pressure" value=${worst ? share(worst.most_back_pressured) : "–"} tone=${worst && worst.most_back_pressured >= 0.5 ? "bad" : ""}
      note=${worst && worst.most_back_pressured >= 0.1 ? html`at <${Name} of=${name(worst)} />` : "none to speak of"} />
    <${Stat} title="Last checkpoint" value=${c?.last ? `${duration(c.since_last_ms)} ago` : "–"}
      note=${c?.last ? `no. ${c.last.checkpoint}: ${bytes(c.last.size)} in ${duration(c.last.duration_ms)}` : "none yet"}/>
    <${Stat} title=${behind.length ? "Records behind" : "Watermark lag"} value=${behind.length ? count(behind.reduce((a, b) => a + b, 0)) : lags.length ? duration(Math.max(...lags)) : "–"}
      note=${behind.length ? "in all partitions" : lags.length ? "behind the clock, at worst" : "no event time"} />
    <${Stat} title="Failures" value=${count(metrics?.failures ?? 0)} tone=${metrics?.failures ? "bad" : ""}
      note=${`${many(metrics?.attempts ?? 0, "attempt")}, ${failed ? `${many(failed, "checkpoint")} failed` : "no checkpoint failed"}`} />
  </dl>`;
}

function Operators({ graph, metrics, go }) {
  const by = metrics?.operators || {};
  const vertices = new Map((metrics?.vertices || []).map((v) => [v.id, v]));
  const rows = graph.vertices.flatMap((v) => v.operators.map((uid) => ({ uid, v, op: graph.operators[uid], f: by[uid] || {}, w: vertices.get(v.id) })));
  if (!rows.length) return html`<${Empty}>The job has no operators yet.<//>`;
  const columns = [
    { title: "operator", get: (r) => r.uid, show: (r) => html`<${Name} of=${r.uid} /> <small class="soft">${r.op.name === r.uid ? r.op.kind : html`<${Name} of=${r.op.name} />`}</small>` },
    { title: "subtasks", num: true, get: (r) => r.v.parallelism },
    { title: "in", num: true, get: (r) => r.f.records_in_per_second, show: (r) => rate(r.f.records_in_per_second) },
    { title: "out", num: true, get: (r) => r.f.records_out_per_second, show: (r) => rate(r.f.records_out_per_second) },
    { title: "records", num: true, get: (r) => r.f.records_in, show: (r) => count(r.f.records_in) },
    { title: "busy · back-pressured", get: (r) => (r.w ? r.w.busy + r.w.back_pressured : 0), show: (r) => html`<${Meter} busy=${r.w?.busy || 0} held=${r.w?.back_pressured || 0} />` },
    { title: "keys", num: true, get: (r) => r.f.keys, show: (r) => (r.f.keys ? count(r.f.keys) : "") },
    { title: "timers", num: true, get: (r) => r.f.timers, show: (r) => (r.f.timers ? count(r.f.timers) : "") },
    { title: "watermark", num: true, get: (r) => r.f.watermark, show: (r) => html`<${Watermark} of=${r.f} />` },
    { title: "late", num: true, get: (r) => r.f.late_records, show: (r) => (r.f.late_records ? html`<span class="warn-text">${count(r.f.late_records)}</span>` : "") },
  ];
  return html`<${Table} label="Operators" columns=${columns} rows=${rows} keyOf=${(r) => r.uid} onRow=${(r) => go(`subtasks/${r.v.id}`)} />
    ${rows.filter((r) => r.f.outage).map((r) => html`<p key=${r.uid} class="trouble"><${Name} of=${r.uid} /> waits for its outside system: ${printable(r.f.outage)}</p>`)}`;
}

function Watermark({ of }) {
  if (of.watermark === null || of.watermark === undefined) return html`<span class="soft">–</span>`;
  return html`<span title=${`event time ${time(of.watermark)}`}>${duration(of.watermark_lag_ms)} behind</span>`;
}
