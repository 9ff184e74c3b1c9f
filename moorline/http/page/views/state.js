// State by operator: how much, in which key groups, the largest keys; and what is under one key.

import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { useAsked } from "../data.js";
import { bytes, count, duration, printable, time, value } from "../format.js";
import { Card, Empty, HotKeys, Name, Stat, Table, Trouble } from "../parts.js";

const MINUTES_5 = 300000;

const grown = (amount) => `${amount > 0 ? "+" : ""}${bytes(amount)}`;

export function State({ page }) {
  const [found, explain] = useAsked();
  const [chosen, setChosen] = useState(null);
  const [wanted, setWanted] = useState(null);
  const look = () => explain("/v1/explain", { top: 20 }, MINUTES_5);
  useEffect(() => {
    if (page.has_storage) look();
  }, []);
  const lookUp = (uid, state, key) => {
    setWanted({ uid, state, key });
    scrollTo(0, 0);
  };
  const data = found.data;
  const hot = (data?.operators || []).flatMap((o) => o.hottest.map((k) => ({ uid: o.uid, shown: value(k.key), ...k })));
  const id = (s) => `${s.uid}\n${s.state}\n${s.table}`;
  const state = data?.states.find((s) => id(s) === chosen);
  return html`
    <${Lookup} page=${page} wanted=${wanted} />
    ${!page.has_storage ? html`<${Empty}>The job takes no checkpoints, and sizes are read from them. A look-up by key works all the same.<//>` : null}
    <${Trouble} error=${found.error} />
    ${found.busy && !data ? html`<${Empty}>Reading the newest checkpoint …<//>` : null}
    ${data ? html`
      <dl class="stats">
        <${Stat} title="Stored" value=${bytes(data.stored)} note=${`checkpoint ${data.checkpoint}, ${time(data.created_ms)}`} />
        <${Stat} title="Unpacked" value=${bytes(data.states.reduce((sum, s) => sum + s.bytes, 0))} note="keys and values" />
        <${Stat} title="Keys" value=${count(data.states.reduce((sum, s) => sum + s.keys, 0))} note="over all states" />
        ${data.since ? html`<${Stat} title="Growth" value=${grown(data.states.reduce((sum, s) => sum + (s.growth?.bytes || 0), 0))} note=${`since checkpoint ${data.since}, ${duration(data.created_ms - data.since_ms)} before`} />` : null}
      </dl>
      <${Card} title="States" flush=${true} aside=${html`<button type="button" class="quiet" disabled=${found.busy} onClick=${look}>${found.busy ? "Reading …" : "Read again"}</button>`}>
        <${States} rows=${data.states} keyOf=${id} chosen=${chosen} onRow=${(s) => setChosen(chosen === id(s) ? null : id(s))} /><//>
      ${hot.length ? html`<${Card} title="Hottest keys" flush=${true} aside=${html`<small class="soft">about, from a sample of the last minute’s records</small>`}>
        <${HotKeys} rows=${hot} ask=${(k) => lookUp(k.uid, page.graph.operators[k.uid]?.states[0]?.name || "", k.key)} /><//>` : null}
      ${state ? html`<${OneState} state=${state} groups=${page.graph.max_parallelism} ask=${(key) => lookUp(state.uid, state.state, key)} />` : null}` : null}`;
}

function States({ rows, keyOf, chosen, onRow }) {
  const most = Math.max(1, ...rows.map((s) => s.bytes));
  const columns = [
    { title: "operator", get: (s) => s.uid, show: (s) => html`<${Name} of=${s.uid} />` },
    { title: "state", get: (s) => s.state, show: (s) => html`<${Name} of=${s.state || s.table} mono=${true} />` },
    { title: "kind", get: (s) => s.kind, show: (s) => html`${s.kind} <small class="soft">${printable(s.type)}</small>` },
    { title: "keys", num: true, get: (s) => s.keys, show: (s) => (s.keys ? count(s.keys) : "") },
    { title: "rows", num: true, get: (s) => s.rows, show: (s) => count(s.rows) },
    { title: "unpacked", num: true, get: (s) => s.bytes, show: (s) => bytes(s.bytes) },
    { title: "", show: (s) => html`<span class="share"><i style=${{ width: `${(s.bytes / most) * 100}%` }}></i></span>` },
    { title: "stored", num: true, get: (s) => s.stored, show: (s) => bytes(s.stored) },
    { title: "growth", num: true, get: (s) => s.growth?.bytes ?? null, show: (s) => (s.growth ? grown(s.growth.bytes) : "") },
    { title: "expired", num: true, get: (s) => s.expired?.bytes ?? null, show: (s) => (s.expired ? bytes(s.expired.bytes) : "") },
  ];
  return html`<${Table} label="States" columns=${columns} rows=${rows} keyOf=${keyOf} chosen=${chosen} onRow=${onRow} first=${5} />`;
}

function OneState({ state, groups, ask }) {
  const most = Math.max(1, ...state.key_groups.map((g) => g.bytes));
  const width = 1000 / groups;
  return html`<${Card} title=${`${printable(state.uid)} · ${printable(state.state)}`} aside=${html`<small class="soft">${state.key_groups.length} of ${groups} key groups have something</small>`}>
    ${state.key_groups.length ? html`<svg class="spread" viewBox="0 0 1000 80" preserveAspectRatio="none" role="img" aria-label=${`Bytes by key group, at most ${bytes(most)}`}>
      ${state.key_groups.map((g) => html`<rect key=${g.key_group} x=${g.key_group * width} width=${Math.max(1, width - 0.5)} y=${80 - (g.bytes / most) * 76} height=${(g.bytes / most) * 76}><title>key group ${g.key_group}: ${bytes(g.bytes)} in ${g.rows} rows</title></rect>`)}
    </svg><p class="scale"><span>key group 0</span><span>at most ${bytes(most)}</span><span>${groups - 1}</span></p>` : null}
    ${state.largest.length ? html`<h3>Largest keys</h3><${Table} label="Largest keys" rows=${state.largest} keyOf=${(k) => JSON.stringify(k.key)} columns=${[
      { title: "key", show: (k) => html`<span class="mono">${value(k.key)}</span>` },
      { title: "key group", num: true, get: (k) => k.key_group },
      { title: "rows", num: true, get: (k) => k.rows, show: (k) => count(k.rows) },
      { title: "bytes", num: true, get: (k) => k.bytes, show: (k) => bytes(k.bytes) },
      { title: "", show: (k) => html`<button type="button" class="quiet" onClick=${() => ask(k.key)}>Look up</button>` },
    ]} />` : null}
  <//>`;
}

/** Whole numbers that JavaScript would round stay as they are written. (Older browsers do not say how they are.) */
const exact = (_, v, context) =>
  typeof v === "number" && /^-?[0-9]+$/.test(context?.source || "") && !Number.isSafeInteger(v) ? { int: context.source } : v;

/** A key as people type it: JSON, or a text if it is none. */
function keyOf(text) {
  try {
    return JSON.parse(text, exact);
  } catch {
    return text;
  }
}

function Lookup({ page, wanted }) {
  const keyed = Object.entries(page.graph.operators).filter(([, o]) => o.is_keyed);
  const [uid, setUid] = useState(keyed[0]?.[0] || "");
  const known = page.graph.operators[uid]?.states || [];
  const [state, setState] = useState(known[0]?.name || "");
  const [key, setKey] = useState("");
  const [level, setLevel] = useState("live");
  const [answer, query] = useAsked();
  const ask = (q) => query("/v1/query", { ...q, level, timeout_ms: 10000 });
  const asked = answer.content;
  useEffect(() => {
    if (!wanted) return;
    setUid(wanted.uid);
    setState(wanted.state);
    setKey(JSON.stringify(wanted.key));
    ask(wanted);
  }, [wanted]);
  const choose = (u) => {
    setUid(u);
    setState(page.graph.operators[u]?.states[0]?.name || "");
  };
  if (!keyed.length) return html`<${Empty}>No operator of this job has a key.<//>`;
  return html`<${Card} title="Look up a key">
    <form class="row" onSubmit=${(e) => { e.preventDefault(); ask({ uid, state, key: keyOf(key) }); }}>
      <label>Operator <select value=${uid} onChange=${(e) => choose(e.target.value)}>${keyed.map(([u]) => html`<option key=${u} value=${u}>${printable(u)}</option>`)}</select></label>
      <label>State <input list="states" class="mono" value=${state} required spellcheck="false" onInput=${(e) => setState(e.target.value)} />
        <datalist id="states">${known.map((s) => html`<option key=${s.name} value=${s.name} />`)}</datalist></label>
      <label class="grow">Key <input class="mono" value=${key} required spellcheck="false" placeholder='7, "ada", [1, "a"]' onInput=${(e) => setKey(e.target.value)} /></label>
      <label>Of <select value=${level} onChange=${(e) => setLevel(e.target.value)}><option value="live">the running job</option><option value="checkpoint">the newest checkpoint</option></select></label>
      <button type="submit" class="main" disabled=${answer.busy}>${answer.busy ? "Asking …" : "Look up"}</button>
    </form>
    <${Trouble} error=${answer.error} />
    ${answer.data ? html`<div class="answer" aria-live="polite"><span class="soft">${printable(asked.uid)}.${printable(asked.state)}[${value(asked.key)}]</span><pre tabindex="0">${value(answer.data.value)}</pre></div>` : null}
  <//>`;
}
