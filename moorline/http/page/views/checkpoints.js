// Checkpoints and savepoints of this run: under way, complete and failed, down to the part of each subtask.

import { html } from "../vendor/htm-preact.js";
import { usePolled } from "../data.js";
import { ago, bytes, count, duration, printable, time } from "../format.js";
import { Card, Empty, Name, Pill, Stat, Table, Trouble } from "../parts.js";

export function Checkpoints({ page, metrics, argument, go }) {
  const { data, error } = usePolled("/v1/history");
  if (!data) return html`<${Trouble} error=${error} />`;
  const rows = [...data.in_progress, ...data.checkpoints];
  const done = data.checkpoints.filter((c) => c.status === "completed");
  const failed = Object.entries(metrics?.checkpoints.failed || {});
  const average = (figure) => (done.length ? done.reduce((sum, c) => sum + c[figure], 0) / done.length : null);
  const last = done[0];
  return html`
    <dl class="stats">
      <${Stat} title="Completed" value=${count(metrics?.checkpoints.completed ?? done.length)} note="in this run" />
      <${Stat} title="Last" value=${last ? ago(last.started_ms + last.duration_ms) : "–"} note=${last ? `no. ${last.checkpoint}` : ""} />
      <${Stat} title="Duration" value=${duration(last?.duration_ms)} note=${`${duration(average("duration_ms"))} on average`} />
      <${Stat} title="Size" value=${bytes(last?.size)} note=${last ? `${bytes(last.uploaded)} of it new` : ""} />
      <${Stat} title="Failed" value=${count(failed.reduce((sum, [, n]) => sum + n, 0))} tone=${failed.length ? "warn" : ""}
        note=${failed.length ? failed.map(([why, n]) => `${why.toLowerCase().replace(/_/g, " ")} ${n}`).join(", ") : "none"} />
    </dl>
    <${Card} title="Durations"><${Bars} rows=${data.checkpoints.slice(0, 100).reverse()} chosen=${argument} go=${go} /><//>
    ${argument ? html`<${Details} key=${argument} number=${argument} graph=${page.graph} />` : null}
    <${Card} title="History" flush=${true} aside=${html`<small class="soft">Choose one for its parts</small>`}>
      ${rows.length ? html`<${History} rows=${rows} chosen=${Number(argument)} go=${go} />` : html`<${Empty}>There is no checkpoint yet${page.has_storage ? "" : ": the job was started without checkpoints="}.<//>`}
    <//>`;
}

/** A bar for each of the last hundred, as tall as it took long. */
function Bars({ rows, chosen, go }) {
  if (!rows.length) return html`<${Empty}>No checkpoint has ended yet.<//>`;
  // One that timed out would make all others look alike: it is as tall as the tallest that is complete.
  const most = Math.max(...rows.filter((c) => c.status === "completed").map((c) => c.duration_ms), 1);
  const tall = (c) => Math.max(3, Math.min(1, c.duration_ms / most) * 66);
  const width = 1000 / Math.max(rows.length, 30);
  return html`<svg class="spread bars" viewBox="0 0 1000 70" preserveAspectRatio="none" role="img" aria-label=${`Durations of the last ${rows.length} checkpoints, at most ${duration(most)}`}>
      ${rows.map((c, n) => html`<rect key=${`${c.attempt}-${c.checkpoint}`} x=${n * width + 1} width=${Math.max(1, width - 2)} y=${70 - tall(c)}
        height=${tall(c)} class=${`${c.status === "failed" ? "failed" : ""}${String(c.checkpoint) === chosen ? " chosen" : ""}`}
        onClick=${() => go(`checkpoints/${c.checkpoint}`)}><title>no. ${c.checkpoint}, ${c.status}: ${duration(c.duration_ms)}</title></rect>`)}
    </svg><p class="scale"><span>no. ${rows[0].checkpoint}</span><span>the longest complete one took ${duration(most)}</span><span>no. ${rows[rows.length - 1].checkpoint}</span></p>`;
}

function History({ rows, chosen, go }) {
  const columns = [
    { title: "no.", num: true, get: (c) => c.checkpoint },
    { title: "status", get: (c) => c.status, show: (c) => html`<${Pill} of=${c.status} /> ${c.kind === "checkpoint" ? "" : html`<small class="soft">${c.kind}</small>`}` },
    { title: "started", get: (c) => c.started_ms, show: (c) => time(c.started_ms) },
    { title: "parts", num: true, get: (c) => c.acknowledged, show: (c) => `${c.acknowledged}/${c.expected}` },
    { title: "duration", num: true, get: (c) => c.duration_ms, show: (c) => duration(c.duration_ms) },
    { title: "align", num: true, get: (c) => c.align_ms, show: (c) => duration(c.align_ms) },
    { title: "sync", num: true, get: (c) => c.sync_ms, show: (c) => duration(c.sync_ms) },
    { title: "async", num: true, get: (c) => c.async_ms, show: (c) => duration(c.async_ms) },
    { title: "size", num: true, get: (c) => c.size, show: (c) => bytes(c.size) },
    { title: "new", num: true, get: (c) => c.uploaded, show: (c) => bytes(c.uploaded) },
    { title: "attempt", num: true, get: (c) => c.attempt },
    { title: "why it failed", show: (c) => (c.failure ? html`<span class="bad-text" title=${printable(c.detail)}>${printable(c.failure)}</span>` : c.savepoint ? html`<span class="soft"><${Name} of=${c.savepoint} mono=${true} /></span>` : "") },
  ];
  return html`<${Table} label="Checkpoints" columns=${columns} rows=${rows} keyOf=${(c) => c.checkpoint} chosen=${chosen} onRow=${(c) => go(`checkpoints/${c.checkpoint}`)} />`;
}

function Details({ number, graph }) {
  const { data, error } = usePolled(`/v1/checkpoints/${encodeURIComponent(number)}`, 2000);
  if (!data) return error ? html`<${Card} title=${`Checkpoint ${number}`}><${Trouble} error=${error} /><//>` : null;
  const most = Math.max(1, ...data.subtasks.map((s) => s.align_ms + s.sync_ms + s.async_ms));
  const operators = Object.entries(data.operators).map(([uid, o]) => ({ uid, ...o }));
  const first = (id) => graph.vertices.find((v) => String(v.id) === id.split("/")[0])?.operators[0] || "";
  const phases = (s) => html`<span class="phases" title=${`align ${duration(s.align_ms)}, sync ${duration(s.sync_ms)}, async ${duration(s.async_ms)}`}>
    ${["align", "sync", "async"].map((p) => html`<i key=${p} class=${`is-${p}`} style=${{ width: `${(s[`${p}_ms`] / most) * 100}%` }}></i>`)}</span>`;
  const shared = [
    { title: "acknowledged", num: true, get: (r) => r.acknowledged_ms, show: (r) => duration(r.acknowledged_ms) },
    { title: "align", num: true, get: (r) => r.align_ms, show: (r) => duration(r.align_ms) },
    { title: "sync", num: true, get: (r) => r.sync_ms, show: (r) => duration(r.sync_ms) },
    { title: "async", num: true, get: (r) => r.async_ms, show: (r) => duration(r.async_ms) },
    { title: "size", num: true, get: (r) => r.size, show: (r) => bytes(r.size) },
  ];
  return html`<${Card} title=${`${data.kind === "checkpoint" ? "Checkpoint" : data.kind === "savepoint" ? "Savepoint" : "Final checkpoint"} ${data.checkpoint}`} flush=${true}
      aside=${html`<${Pill} of=${data.status} /> <span class="legend"><i class="is-align"></i>align <i class="is-sync"></i>sync <i class="is-async"></i>async</span> <a href="#/checkpoints">Close</a>`}>
    ${data.failure ? html`<p class="trouble">${printable(data.failure)}${data.detail ? html`<br /><code>${printable(data.detail)}</code>` : null}</p>` : null}
    ${operators.length ? html`<${Table} label="Operators of the checkpoint" rows=${operators} keyOf=${(o) => o.uid} columns=${[
      { title: "operator", get: (o) => o.uid, show: (o) => html`<${Name} of=${o.uid} />` },
      { title: "parts", num: true, get: (o) => o.subtasks },
      ...shared,
      { title: "new", num: true, get: (o) => o.uploaded, show: (o) => bytes(o.uploaded) },
      { title: "rows", num: true, get: (o) => o.rows, show: (o) => count(o.rows) },
    ]} />
    <${Table} label="Subtasks of the checkpoint" rows=${data.subtasks} keyOf=${(s) => s.subtask} columns=${[
      { title: "subtask", get: (s) => s.subtask, show: (s) => html`<${Name} of=${first(s.subtask)} /> <span class="soft">${s.subtask.split("/")[1]}</span>` },
      { title: "phases", get: (s) => s.align_ms + s.sync_ms + s.async_ms, show: phases },
      ...shared,
      { title: "in flight", num: true, get: (s) => s.in_flight_records, show: (s) => (s.in_flight_records ? count(s.in_flight_records) : "") },
    ]} />` : html`<${Empty}>Parts of subtasks are kept for the last twenty.<//>`}
  <//>`;
}
