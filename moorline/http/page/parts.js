// Small parts that all views are made of. Whatever comes from a job is put in as text, never as markup.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { printable, rate, share } from "./format.js";

/** A name that a user has chosen: isolated, so that its direction does not spread. */
export function Name({ of, mono }) {
  const text = printable(of);
  return html`<bdi class=${mono ? "name mono" : "name"} title=${text}>${text}</bdi>`;
}

const TONES = {
  running: "good", finished: "good", completed: "good", matches: "good", converted: "good",
  starting: "busy", waiting: "busy", stopping: "busy", in_progress: "busy", rescaled: "busy", new: "busy",
  restarting: "warn", cancelling: "warn", unknown: "warn", dropped: "warn", "may run": "warn",
  "it would start": "good", "it would refuse": "bad",
  failed: "bad", LOST: "bad", IMPOSSIBLE: "bad", damaged: "bad", unreadable: "bad",
  "not ended": "busy",
};

export function Pill({ of }) {
  return html`<span class=${`pill ${TONES[of] || "calm"}`}><i></i>${printable(of).replace(/_/g, " ")}</span>`;
}

/** How the time was spent: busy, held back, idle. */
export function Meter({ busy, held, wide }) {
  const said = `busy ${share(busy)}, back-pressured ${share(held)}, idle ${share(Math.max(0, 1 - busy - held))}`;
  return html`<span class=${wide ? "meter wide" : "meter"} role="img" aria-label=${said} title=${said}>
    <i class="is-held" style=${{ width: `${held * 100}%` }}></i>
    <i class="is-busy" style=${{ width: `${busy * 100}%` }}></i>
  </span>`;
}

export function Stat({ title, value, note, tone }) {
  return html`<div class=${`stat ${tone || ""}`}>
    <dt>${title}</dt>
    <dd>${value}</dd>
    ${note ? html`<small>${note}</small>` : null}
  </div>`;
}

export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

export function Trouble({ error }) {
  return error ? html`<p class="trouble" role="alert">${printable(error.message)}</p>` : null;
}

export function Card({ title, aside, children, flush }) {
  return html`<section class=${flush ? "card flush" : "card"}>
    ${title ? html`<header><h2>${title}</h2>${aside ? html`<div class="aside">${aside}</div>` : null}</header>` : null}
    ${children}
  </section>`;
}

/** The keys that get the most records: {uid, key, shown, share, records_per_second}. `ask`: look one up. */
export function HotKeys({ rows, ask }) {
  const columns = [
    { title: "operator", get: (k) => k.uid, show: (k) => html`<${Name} of=${k.uid} />` },
    { title: "key", get: (k) => k.shown, show: (k) => html`<${Name} of=${k.shown} mono=${true} />` },
    { title: "records", num: true, get: (k) => k.records_per_second, show: (k) => rate(k.records_per_second) },
    { title: "share", num: true, get: (k) => k.share, show: (k) => percent(k.share) },
    { title: " ", show: (k) => html`<span class="share"><i style=${{ width: `${k.share * 100}%` }}></i></span>` },
    { title: "", show: (k) => html`<button type="button" class="quiet" onClick=${() => ask(k)}>Look up</button>` },
  ].filter((c) => ask || c.title);
  return html`<${Table} label="Hottest keys" columns=${columns} rows=${rows} keyOf=${(k) => `${k.uid}\n${k.shown}`} first=${2} />`;
}

const percent = (share) => `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

const PAGE = 100;

/**
 * A table that can be sorted. columns: [{title, get, show, num}]: `get` is compared, `show` is seen.
 * Long ones begin with their first hundred rows.
 */
export function Table({ columns, rows, keyOf, onRow, chosen, label, first = null, down = true }) {
  const [order, setOrder] = useState({ column: first, down });
  const [all, setAll] = useState(false);
  const by = order.column === null ? null : columns[order.column];
  const sorted = by ? [...rows].sort((a, b) => compare(by.get(a), by.get(b)) * (order.down ? -1 : 1)) : rows;
  const shown = all ? sorted : sorted.slice(0, PAGE);
  const turn = (n) => setOrder((o) => ({ column: n, down: o.column === n ? !o.down : Boolean(columns[n].num) }));
  const direction = (n) => (order.column !== n ? "none" : order.down ? "descending" : "ascending");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          ${columns.map((c, n) => html`<th key=${c.title} class=${c.num ? "num" : ""} aria-sort=${direction(n)}>
            ${c.get ? html`<button type="button" onClick=${() => turn(n)}>${c.title}</button>` : c.title}
          </th>`)}
        </tr>
      </thead>
      <tbody>
        ${shown.map((row) => html`<tr key=${keyOf(row)} class=${onRow ? "open" : ""}
          aria-selected=${onRow ? String(chosen === keyOf(row)) : null} tabindex=${onRow ? 0 : null}
          onClick=${onRow ? () => onRow(row) : null}
          onKeyDown=${onRow ? (e) => (e.key === "Enter" || e.key === " ") && e.target === e.currentTarget && (e.preventDefault(), onRow(row)) : null}>
          ${columns.map((c) => html`<td key=${c.title} class=${c.num ? "num" : ""}>${c.show ? c.show(row) : c.get(row)}</td>`)}
        </tr>`)}
      </tbody>
    </table>
    ${!all && sorted.length > PAGE
      ? html`<button type="button" class="more" onClick=${() => setAll(true)}>Show all ${sorted.length}</button>`
      : null}
  </div>`;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}

/** A question before something is done. Closed by Escape, by its button, or when it is done. */
export function Dialog({ title, children, yes, danger, busy, onYes, onClose }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.open && dialog.close();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    if (!busy) onYes();
  };
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${element} onCancel=${cancel} aria-label=${title}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      <footer>
        <button type="button" onClick=${onClose}>Close</button>
        <button type="submit" class=${danger ? "danger" : "main"} disabled=${busy}>${busy ? "Working …" : yes}</button>
      </footer>
    </form>
  </dialog>`;
}
