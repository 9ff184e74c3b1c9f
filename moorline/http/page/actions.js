// What can be done to a job: a savepoint, another parallelism, an end. Each is asked for in words before it is sent.

import { html, useState } from "./vendor/htm-preact.js";
import { ask } from "./data.js";
import { printable } from "./format.js";
import { Dialog, Trouble } from "./parts.js";

const MINUTES_10 = 600000;

/** A folder that is new, below one where savepoints may go. */
function newFolder(savepoints, job) {
  const stamp = new Date().toISOString().slice(0, 19).replace(/[^0-9]/g, "");
  const name = job.replace(/[^A-Za-z0-9_-]/g, "-").slice(0, 40) || "job";
  return savepoints.length ? `${savepoints[0].replace(/\/+$/, "")}/savepoint-${name}-${stamp}` : "";
}

const ACTIONS = {
  savepoint: { label: "Savepoint", title: "Take a savepoint", yes: "Take it" },
  rescale: { label: "Rescale", title: "Go on with another parallelism", yes: "Rescale" },
  stop: { label: "Stop", title: "Stop the job", yes: "Stop it" },
  cancel: { label: "Cancel", title: "Cancel the job", yes: "Cancel the job", danger: true },
};

export function Actions({ page, metrics, say }) {
  const [open, setOpen] = useState(null);
  const over = ["finished", "failed", "cancelled"].includes(metrics?.status);
  return html`<div class="actions" role="group" aria-label="Actions">
    ${Object.entries(ACTIONS).map(([id, action]) => html`<button key=${id} type="button" disabled=${over}
      class=${action.danger ? "quiet danger" : "quiet"} onClick=${() => setOpen(id)}>${action.label}</button>`)}
    ${open ? html`<${Question} key=${open} id=${open} page=${page} metrics=${metrics} say=${say}
      onClose=${() => setOpen(null)} />` : null}
  </div>`;
}

function Question({ id, page, metrics, say, onClose }) {
  const action = ACTIONS[id];
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [path, setPath] = useState(() => newFolder(page.savepoints, page.job));
  const [withSavepoint, setWithSavepoint] = useState(false);
  const [drain, setDrain] = useState(false);
  const [uid, setUid] = useState("");
  const most = Math.max(1, ...(metrics?.vertices || []).map((v) => v.parallelism));
  const [parallelism, setParallelism] = useState(most);
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      say(await perform(id, { path, withSavepoint, drain, uid, parallelism: Number(parallelism) }));
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  const folder = html`<label>Folder, new or empty, as the driver sees it
    <input type="text" class="mono" value=${path} required spellcheck="false" onInput=${(e) => setPath(e.target.value)} />
    <small>${page.savepoints.length ? html`Below ${page.savepoints.map((s) => html`<code key=${s}>${printable(s)}</code> `)}` : "No location for savepoints is permitted: give HttpEndpoint(savepoints=[…])."}</small>
  </label>`;
  return html`<${Dialog} title=${action.title} yes=${action.yes} danger=${action.danger} busy=${busy} onYes=${act} onClose=${onClose}>
    ${id === "savepoint" ? html`<p>The job goes on. All of its state is written, in rows that any tool reads.</p>${folder}` : null}
    ${id === "rescale" ? html`
      <p>The job takes a checkpoint and starts again from it, which takes some seconds. No record is lost or counted twice.</p>
      <label>Operator
        <select value=${uid} onChange=${(e) => setUid(e.target.value)}>
          <option value="">all without a parallelism of their own</option>
          ${Object.keys(page.graph.operators).map((u) => html`<option key=${u} value=${u}>${printable(u)}</option>`)}
        </select>
      </label>
      <label>Subtasks
        <input type="number" min="1" max=${page.graph.max_parallelism} value=${parallelism} required
          onInput=${(e) => setParallelism(e.target.value)} />
        <small>at most ${page.graph.max_parallelism}, as many as there are key groups</small>
      </label>` : null}
    ${id === "stop" ? html`
      <p>The job takes a final checkpoint, commits everything, and ends.</p>
      <label class="check"><input type="checkbox" checked=${withSavepoint} onChange=${(e) => setWithSavepoint(e.target.checked)} /> with a savepoint</label>
      ${withSavepoint ? html`${folder}
        <label class="check"><input type="checkbox" checked=${drain} onChange=${(e) => setDrain(e.target.checked)} /> drain: all timers and windows fire first</label>` : null}` : null}
    ${id === "cancel" ? html`<p>The job ends at once. What no checkpoint covers is <strong>not committed</strong>. To end it well, stop it instead.</p>` : null}
    <${Trouble} error=${error} />
  <//>`;
}

async function perform(id, { path, withSavepoint, drain, uid, parallelism }) {
  const patience = MINUTES_10 + 20000;
  switch (id) {
    case "savepoint":
      return `The savepoint is at ${(await ask("/v1/savepoint", { path, timeout_ms: MINUTES_10 }, patience)).savepoint}`;
    case "rescale":
      await ask("/v1/rescale", { parallelism: uid ? { [uid]: parallelism } : parallelism, timeout_ms: MINUTES_10 }, patience);
      return `The job runs with a parallelism of ${parallelism}${uid ? ` in ${uid}` : ""}.`;
    case "stop":
      await ask("/v1/stop", withSavepoint ? { savepoint: path, drain, timeout_ms: MINUTES_10 } : {}, patience);
      return "The job is stopping.";
    default:
      await ask("/v1/stop", { cancel: true });
      return "The job is being cancelled.";
  }
}
