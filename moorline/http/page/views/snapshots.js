// The snapshots in storage: what is in one, what a start from it would do, and what differs between two.

import { html, useState } from "../vendor/htm-preact.js";
import { useAsked, usePolled } from "../data.js";
import { ago, bytes, count, printable, time, value } from "../format.js";
import { Card, Empty, Name, Pill, Table, Trouble } from "../parts.js";

const MINUTES_5 = 300000;

export function Snapshots({ page }) {
  const stored = usePolled("/v1/snapshots", page.has_storage ? 5000 : 0);
  const history = usePolled("/v1/history", 5000);
  const taken = (history.data?.checkpoints || []).filter((c) => c.savepoint && c.status === "completed");
  const rows = [
    ...(stored.data?.checkpoints || []).map((c) => ({ ...c, name: c.checkpoint, kind: "checkpoint" })).reverse(),
    ...taken.map((c) => ({ name: c.savepoint, kind: "savepoint", checkpoint: c.checkpoint, attempt: c.attempt, created_ms: c.started_ms + c.duration_ms, bytes: c.size })),
  ].sort((a, b) => b.created_ms - a.created_ms);
  return html`
    ${page.has_storage ? html`<${Trouble} error=${stored.error} />` : html`<${Empty}>The job takes no checkpoints: it was started without checkpoints=.<//>`}
    ${(stored.data?.damaged || []).map((d) => html`<p key=${d} class="trouble">${printable(d)}</p>`)}
    <${SnapshotList} rows=${rows} url=${stored.data?.url} ask=${{ snapshot: "/v1/snapshot", plan: "/v1/plan", diff: "/v1/diff" }} named=${(r) => ({ snapshot: r.name })} />`;
}

/** Snapshots to choose from. `ask`: the paths of questions; `named`: how a request names one. Shared with many jobs. */
export function SnapshotList({ rows, url, ask, named }) {
  const [chosen, setChosen] = useState(null);
  const [other, setOther] = useState(null);
  const [inside, look] = useAsked();
  const [fate, plan] = useAsked();
  const [changes, diff, forgetChanges] = useAsked();
  const snapshot = rows.find((r) => r.name === chosen);
  // The one before it, unless another is chosen. Old checkpoints go while one looks at them, so it may be gone again.
  const others = rows.filter((r) => r.name !== chosen);
  const earlier = snapshot && others.filter((r) => r.created_ms <= snapshot.created_ms).sort((a, b) => b.created_ms - a.created_ms)[0];
  const against = others.find((r) => r.name === other) || earlier || others[0];
  const choose = (row) => {
    setChosen(row.name);
    setOther(null);
    forgetChanges();
    look(ask.snapshot, named(row));
    if (ask.plan) plan(ask.plan, named(row));
  };
  const compare = () => {
    diff(ask.diff, { before: named(against).snapshot, after: named(snapshot).snapshot }, MINUTES_5);
  };
  const columns = [
    { title: "snapshot", get: (r) => r.checkpoint, show: (r) => (r.kind === "savepoint" ? html`<${Name} of=${r.name} mono=${true} />` : `checkpoint ${r.checkpoint}`) },
    { title: "kind", get: (r) => r.kind, show: (r) => html`<small class="soft">${r.kind}</small>` },
    { title: "made", get: (r) => r.created_ms, show: (r) => html`${time(r.created_ms)} <small class="soft">${ago(r.created_ms)}</small>` },
    { title: "size", num: true, get: (r) => r.bytes, show: (r) => bytes(r.bytes) },
    { title: "attempt", num: true, get: (r) => r.attempt },
    { title: "in flight", num: true, get: (r) => r.in_flight, show: (r) => (r.in_flight ? count(r.in_flight) : "") },
  ];
  return html`
    <${Card} title="Snapshots" flush=${true} aside=${url ? html`<code class="soft">${printable(url)}</code>` : null}>
      ${rows.length ? html`<${Table} label="Snapshots" columns=${columns} rows=${rows} keyOf=${(r) => r.name} chosen=${chosen} onRow=${choose} />` : html`<${Empty}>There is no snapshot yet.<//>`}
    <//>
    ${chosen !== null && !snapshot ? html`<p class="note">What you have looked at has been deleted: newer checkpoints replace it.</p>` : null}
    ${snapshot ? html`
      ${ask.plan ? html`<${Card} title="If the job were started from it" flush=${true} aside=${fate.data ? html`<${Pill} of=${fate.data.is_safe ? "it would start" : "it would refuse"} />` : null}>
        <${Trouble} error=${fate.error} /><${Fate} plan=${fate.data} /><//>` : null}
      <${Card} title="In it" flush=${true}><${Trouble} error=${inside.error} /><${Inside} data=${inside.data} /><//>
      ${rows.length > 1 ? html`<${Card} title="Differences" flush=${true} aside=${html`<label class="inline">from
          <select value=${String(against.name)} onChange=${(e) => { forgetChanges(); setOther(rows.find((r) => String(r.name) === e.target.value).name); }}>
            ${others.map((r) => html`<option key=${r.name} value=${String(r.name)}>${r.kind === "savepoint" ? printable(r.name) : `checkpoint ${r.checkpoint}`}</option>`)}
          </select></label> <button type="button" class="quiet" disabled=${changes.busy} onClick=${compare}>${changes.busy ? "Comparing …" : "Compare"}</button>`}>
        <${Trouble} error=${changes.error} /><${Changes} data=${changes.data} /><//>` : null}` : null}`;
}

function Fate({ plan }) {
  if (!plan) return null;
  return html`
    ${plan.problems.map((p) => html`<p key=${p} class="trouble">${printable(p)}</p>`)}
    ${plan.notes.map((n) => html`<p key=${n} class="note">${printable(n)}</p>`)}
    ${plan.states.length ? html`<${Table} label="Plan" rows=${plan.states} keyOf=${(s) => `${s.uid}\n${s.state}`} columns=${[
      { title: "operator", get: (s) => s.uid, show: (s) => html`<${Name} of=${s.uid} />` },
      { title: "state", get: (s) => s.state, show: (s) => html`<${Name} of=${s.state} mono=${true} />` },
      { title: "becomes", get: (s) => s.verdict, show: (s) => html`<${Pill} of=${s.verdict} />` },
      { title: "note", show: (s) => html`<span class="soft">${printable(s.note)}</span>` },
    ]} />` : html`<${Empty}>It has no state.<//>`}`;
}

function Inside({ data }) {
  if (!data) return null;
  return data.states.length ? html`<${Table} label="States" rows=${data.states} keyOf=${(s) => `${s.uid}\n${s.table}\n${s.state}`} columns=${[
    { title: "operator", get: (s) => s.uid, show: (s) => html`<${Name} of=${s.uid} />` },
    { title: "state", get: (s) => s.state, show: (s) => html`<${Name} of=${s.state || s.table} mono=${true} />` },
    { title: "kind", get: (s) => s.kind, show: (s) => html`${s.kind} <small class="soft">${printable(s.type)}</small>` },
    { title: "rows", num: true, get: (s) => s.rows, show: (s) => (s.rows === null ? "–" : count(s.rows)) },
    { title: "size", num: true, get: (s) => s.bytes, show: (s) => bytes(s.bytes) },
    { title: "key groups", num: true, get: (s) => s.first_key_group, show: (s) => (s.first_key_group === null ? "" : `[${s.first_key_group},${s.end_key_group})`) },
    { title: "files", num: true, get: (s) => s.files },
    { title: "increments", num: true, get: (s) => s.increments },
  ]} />` : html`<${Empty}>It has no state.<//>`;
}

function Changes({ data }) {
  if (!data) return null;
  if (!data.changes.length) return html`<${Empty}>Nothing has changed.<//>`;
  const show = (thing) => html`<span class="mono">${thing === undefined ? "" : value(thing)}</span>`;
  return html`<${Table} label="Differences" rows=${data.changes.map((c, n) => ({ ...c, n }))} keyOf=${(c) => c.n} columns=${[
      { title: "what", get: (c) => c.what },
      { title: "operator", get: (c) => c.uid, show: (c) => html`<${Name} of=${c.uid} />` },
      { title: "state", get: (c) => c.state, show: (c) => html`<${Name} of=${c.state} mono=${true} />` },
      { title: "key", show: (c) => html`${show(c.key)}${c.map_key === undefined ? "" : html` · ${show(c.map_key)}`}` },
      { title: "before", show: (c) => show(c.before) },
      { title: "after", show: (c) => show(c.after) },
    ]} />
    ${data.there_are_more ? html`<p class="note">These are the first ${data.changes.length}. <code>moorline diff</code> shows all.</p>` : null}`;
}
