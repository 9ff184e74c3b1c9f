// All jobs and savepoints below a checkpoint location, running or not: what `moorline serve` shows.

import { html, useEffect } from "../vendor/htm-preact.js";
import { usePolled } from "../data.js";
import { ago, bytes, count, printable, time } from "../format.js";
import { Card, Empty, Name, Pill, Stat, Table, Trouble } from "../parts.js";
import { SnapshotList } from "./snapshots.js";

export function Jobs({ page, at }) {
  const { data, error } = usePolled("/v1/jobs", 5000);
  useEffect(() => {
    document.title = `${printable(page.location)} · Moorline`;
  }, [page.location]);
  const jobs = data?.jobs || [];
  const job = at.view === "job" ? jobs.find((j) => j.folder === at.argument) : null;
  const savepoints = data?.savepoints || [];
  return html`
    <header class="top">
      <div class="head"><img src="/page/icon.svg" alt="Moorline" width="30" height="30" />
        <div class="title"><h1>${job ? html`<${Name} of=${job.job} />` : "Jobs"}</h1><p><code>${printable(page.location)}</code></p></div>
      </div>
      <nav class="tabs" aria-label="Views"><a href="#/" aria-current=${job ? null : "page"}>All jobs</a>${job ? html`<a href=${`#/job/${encodeURIComponent(job.folder)}`} aria-current="page"><${Name} of=${job.job} /></a>` : null}</nav>
    </header>
    ${error ? html`<p class="lost" role="alert">${printable(error.message)}</p>` : null}
    <main id="main" tabindex="-1">${!data ? html`<${Trouble} error=${null} />` : job ? html`<${Job} key=${job.folder} job=${job} />` : html`<${All} jobs=${jobs} savepoints=${savepoints} />`}</main>
    <footer class="foot">Moorline ${page.version}</footer>`;
}

const named = (r) => ({ snapshot: r.place });
const ASK = { snapshot: "/v1/snapshot", diff: "/v1/diff" };

const LONG_MS = 3600000;

/** A job that has not ended and has stored nothing for long may have lost its driver. */
function Age({ of }) {
  const isSilent = of.status === "not ended" && Date.now() - of.created_ms > LONG_MS;
  return isSilent ? html`<span class="warn-text" title="No checkpoint for more than an hour: does its driver still run?">${ago(of.created_ms)}</span>` : ago(of.created_ms);
}

function All({ jobs, savepoints }) {
  const columns = [
    { title: "job", get: (j) => j.job, show: (j) => html`<a href=${`#/job/${encodeURIComponent(j.folder)}`}><${Name} of=${j.job} /></a>${j.job === j.folder ? null : html` <small class="soft">in <${Name} of=${j.folder} /></small>`}` },
    { title: "status", get: (j) => j.status, show: (j) => html`<${Pill} of=${j.status} />` },
    { title: "newest", get: (j) => j.created_ms, show: (j) => (j.created_ms ? html`<${Age} of=${j} /> <small class="soft">no. ${j.newest}</small>` : "–") },
    { title: "size", num: true, get: (j) => j.bytes, show: (j) => bytes(j.bytes) },
    { title: "checkpoints", num: true, get: (j) => j.checkpoints },
    { title: "attempts", num: true, get: (j) => j.attempts },
    { title: "damaged", num: true, get: (j) => j.damaged, show: (j) => (j.damaged ? html`<span class="bad-text">${j.damaged}</span>` : "") },
  ];
  return html`
    <dl class="stats">
      <${Stat} title="Jobs" value=${count(jobs.length)} />
      <${Stat} title="Not ended" value=${count(jobs.filter((j) => j.status === "not ended").length)} note="running, or their driver is lost" />
      <${Stat} title="Savepoints" value=${count(savepoints.length)} />
      <${Stat} title="Newest checkpoints" value=${bytes(jobs.reduce((sum, j) => sum + (j.bytes || 0), 0))} note="together" />
    </dl>
    ${[...jobs, ...savepoints].filter((s) => s.note).map((s) => html`<p key=${s.folder || s.place} class="trouble">${printable(s.note)}</p>`)}
    <${Card} title="Jobs" flush=${true}>${jobs.length ? html`<${Table} label="Jobs" columns=${columns} rows=${jobs} keyOf=${(j) => j.folder} />` : html`<${Empty}>No job has checkpoints here.<//>`}<//>
    ${savepoints.length ? html`<${SnapshotList} ask=${ASK} named=${named} rows=${savepoints.map((s) => ({ ...s, name: s.place, kind: "savepoint" })).sort((a, b) => b.created_ms - a.created_ms)} />` : null}`;
}

function Job({ job }) {
  const { data, error } = usePolled(`/v1/jobs/${encodeURIComponent(job.folder)}`, 5000);
  if (!data) return html`<${Trouble} error=${error} />`;
  const rows = data.checkpoints.map((c) => ({ ...c, name: c.checkpoint, kind: "checkpoint" })).reverse();
  return html`
    <dl class="stats">
      <${Stat} title="Status" value=${html`<${Pill} of=${job.status} />`} note=${job.note} />
      <${Stat} title="Attempts" value=${count(data.attempts)} />
      <${Stat} title="Checkpoints" value=${count(rows.length)} note=${rows[0] ? `newest ${time(rows[0].created_ms)}` : "none"} />
    </dl>
    ${data.damaged.map((d) => html`<p key=${d} class="trouble">${printable(d)}</p>`)}
    <${SnapshotList} rows=${rows} url=${data.url} ask=${ASK} named=${named} />`;
}
