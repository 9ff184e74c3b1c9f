// How the job was started, and what its operators are. Nothing secret is in it: the server leaves that out.

import { html } from "../vendor/htm-preact.js";
import { printable } from "../format.js";
import { Card, Name, Table } from "../parts.js";

const title = (name) => printable(name).replace(/_/g, " ");
const heading = (name) => title(name).replace(/^./, (first) => first.toUpperCase());

export function Configuration({ page }) {
  const { graph, configuration } = page;
  const operators = Object.entries(graph.operators).map(([uid, o]) => ({ uid, ...o }));
  const columns = [
    { title: "uid", get: (o) => o.uid, show: (o) => html`<${Name} of=${o.uid} />${o.has_generated_uid ? html` <small class="warn-text" title="Give it a uid: a generated one changes with the job">generated</small>` : null}` },
    { title: "kind", get: (o) => o.kind, show: (o) => title(o.kind) },
    { title: "function", get: (o) => o.function, show: (o) => html`<${Name} of=${o.function} mono=${true} />` },
    { title: "subtasks", num: true, get: (o) => o.parallelism, show: (o) => html`${o.parallelism}${o.has_own_parallelism ? html` <small class="soft">own</small>` : null}` },
    { title: "inputs", show: (o) => html`<span class="soft">${o.inputs.map(printable).join(", ")}</span>` },
    { title: "states", show: (o) => o.states.map((s) => html`<span key=${s.name} class="tag"><${Name} of=${s.name} /> ${s.kind}${s.expires ? ", expires" : ""}</span>`) },
  ];
  return html`
    <${Card} title="Operators" flush=${true} aside=${html`<small class="soft">${graph.slots} slots in ${graph.stages} stages, ${graph.max_parallelism} key groups</small>`}>
      <${Table} label="Operators" columns=${columns} rows=${operators} keyOf=${(o) => o.uid} /><//>
    <div class="columns">
      ${Object.entries(configuration).map(([group, settings]) => html`<${Card} key=${group} title=${heading(group)}>
        <dl class="settings">${Object.entries(settings).map(([name, value]) => html`<div key=${name}><dt>${title(name)}</dt><dd>${printable(value)}</dd></div>`)}</dl><//>`)}
    </div>`;
}
