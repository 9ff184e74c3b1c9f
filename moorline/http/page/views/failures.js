// The attempts of the job: from where each began, how it ended, and the whole error if it failed.

import { html } from "../vendor/htm-preact.js";
import { usePolled } from "../data.js";
import { duration, many, printable, time } from "../format.js";
import { Card, Empty, Name, Pill, Trouble } from "../parts.js";

const lines = (text) => String(text).split("\n").map(printable).join("\n");

export function Failures({ page }) {
  const { data, error } = usePolled("/v1/history");
  if (!data) return html`<${Trouble} error=${error} />`;
  const failed = data.attempts.filter((a) => a.outcome === "failed");
  const restarts = page.configuration.restarts || {};
  return html`
    <p class="lead">${failed.length ? `${failed.length} of ${many(data.attempts.length, "attempt")} failed.` : "Nothing has failed."}
      <span class="soft"> Restarts: ${Object.entries(restarts).map(([name, value]) => (name === "strategy" ? value : `${name} ${value}`)).join(", ")}</span></p>
    ${data.attempts.length ? html`<ol class="attempts">${data.attempts.map((a, n) => html`<${Attempt} key=${a.attempt} of=${a} isNewest=${n === data.attempts.indexOf(failed[0])} />`)}</ol>` : html`<${Empty}>No attempt has begun yet.<//>`}`;
}

function Attempt({ of: a, isNewest }) {
  const origin = a.restore_location ? html`from <${Name} of=${a.restore_location} mono=${true} />` : a.restored ? `from checkpoint ${a.restored}` : "from an empty state";
  return html`<li>
    <${Card} title=${`Attempt ${a.attempt}`} aside=${html`<${Pill} of=${a.outcome} />`}>
      <p class="facts">
        <span>${time(a.started_ms)}${a.ended_ms ? ` – ${time(a.ended_ms)}` : ""}</span>
        <span>${many(a.subtasks, "subtask")}</span><span>${origin}</span>
        ${a.start_took_ms !== null ? html`<span>ran after ${duration(a.start_took_ms)}</span>` : null}
        ${a.uid ? html`<span>${a.host ? "lost" : "failed in"} <${Name} of=${a.uid} /> ${a.subtask}${a.host ? html` on <${Name} of=${a.host} />` : null}</span>` : null}
      </p>
      ${a.error ? html`<p class="bad-text error">${lines(a.error)}</p>` : null}
      ${a.traceback && a.traceback !== a.error ? html`<details open=${isNewest}><summary>Traceback</summary><pre tabindex="0">${lines(a.traceback)}</pre></details>` : null}
    <//>
  </li>`;
}
