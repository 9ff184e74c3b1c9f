// The page: which view is shown, the head above it, and what is said when there is no token or no answer.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { Actions } from "./actions.js";
import { decoded, keepToken, takeToken, usePolled } from "./data.js";
import { duration, printable } from "./format.js";
import { Name, Pill, Trouble } from "./parts.js";
import { Checkpoints } from "./views/checkpoints.js";
import { Configuration } from "./views/configuration.js";
import { Failures } from "./views/failures.js";
import { Jobs } from "./views/jobs.js";
import { OverTime } from "./views/over_time.js";
import { Overview } from "./views/overview.js";
import { Snapshots } from "./views/snapshots.js";
import { State } from "./views/state.js";
import { Subtasks } from "./views/subtasks.js";

const VIEWS = {
  __proto__: null,
  "": ["Overview", Overview],
  subtasks: ["Subtasks", Subtasks],
  time: ["Over time", OverTime],
  checkpoints: ["Checkpoints", Checkpoints],
  failures: ["Failures", Failures],
  state: ["State", State],
  snapshots: ["Snapshots", Snapshots],
  configuration: ["Configuration", Configuration],
};

const here = () => {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view, argument: decoded(rest.join("/")) };
};

export const go = (path) => {
  location.hash = `#/${path}`;
};

function Page() {
  const [token, setToken] = useState(takeToken);
  const [at, setAt] = useState(here);
  useEffect(() => {
    const moved = () => {
      setToken(takeToken());
      setAt(here());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const give = (given) => {
    keepToken(given);
    setToken(given);
  };
  return token ? html`<${Served} key=${token} at=${at} />` : html`<${Door} give=${give} />`;
}

function Door({ give, error }) {
  const [given, setGiven] = useState("");
  const enter = (event) => {
    event.preventDefault();
    if (given.trim()) give(given.trim());
  };
  return html`<main class="door">
    <h1><img src="/page/icon.svg" alt="" width="36" height="36" /> Moorline</h1>
    <p>This page is shown to who has its token. A job’s is in the file that <code>handle.console.token_file</code> names; <code>moorline serve</code> prints its own.</p>
    <form onSubmit=${enter}>
      <label>Token <input type="password" autocomplete="off" autofocus value=${given} onInput=${(e) => setGiven(e.target.value)} /></label>
      <button type="submit" class="main">Show it</button>
    </form>
    <${Trouble} error=${error} />
  </main>`;
}

function Served({ at }) {
  const { data: page, error } = usePolled("/v1/page", 5000);
  const [refused, setRefused] = useState(false);
  useEffect(() => {
    if (error?.status === 401) setRefused(true);
  }, [error]);
  if (refused) return html`<${Door} give=${(token) => { keepToken(token); location.reload(); }} error=${new Error("That is not the token. A job that is started again has a new one.")} />`;
  if (!page) return html`<main class="door"><p class="soft">${error ? "" : "Asking the driver …"}</p><${Trouble} error=${error} /></main>`;
  return page.kind === "location" ? html`<${Jobs} page=${page} at=${at} />` : html`<${Job} page=${page} at=${at} />`;
}

function Job({ page, at }) {
  const { data: metrics, error } = usePolled("/v1/metrics");
  const [said, setSaid] = useState("");
  const [, View] = VIEWS[at.view] || VIEWS[""];
  useEffect(() => {
    document.title = `${metrics ? `${metrics.status} · ` : ""}${printable(page.job)} · Moorline`;
  }, [metrics?.status, page.job]);
  useEffect(() => {
    document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at.view]);
  useEffect(() => {
    const timer = said ? setTimeout(() => setSaid(""), 15000) : 0;
    return () => clearTimeout(timer);
  }, [said]);
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header class="top">
      <div class="head">
        <img src="/page/icon.svg" alt="Moorline" width="30" height="30" />
        <div class="title">
          <h1><${Name} of=${page.job} /></h1>
          <p>${metrics ? html`<${Pill} of=${metrics.status} /> <span>attempt ${metrics.attempt || "–"}</span> <span>up ${duration(metrics.uptime_ms)}</span>` : html`<span class="soft">…</span>`}
            ${page.spark_ui ? html` <a href=${/^https?:/.test(page.spark_ui) ? page.spark_ui : "#/"} rel="noreferrer noopener" target="_blank">Spark’s page</a>` : null}</p>
        </div>
        <${Actions} page=${page} metrics=${metrics} say=${setSaid} />
      </div>
      <nav class="tabs" aria-label="Views">
        ${Object.entries(VIEWS).map(([id, [title]]) => html`<a key=${id} href=${`#/${id}`} aria-current=${(VIEWS[at.view] ? at.view : "") === id ? "page" : null}>${title}
          ${id === "failures" && metrics?.failures ? html`<b class="badge">${metrics.failures}</b>` : null}</a>`)}
      </nav>
    </header>
    <div aria-live="polite">${said ? html`<p class="said">${printable(said)}<button type="button" class="quiet" aria-label="Close" onClick=${() => setSaid("")}>×</button></p>` : null}</div>
    ${error ? html`<p class="lost" role="alert">${printable(error.message)} ${metrics ? "What is shown is what was known last." : ""}</p>` : null}
    <main id="main" tabindex="-1" class=${error ? "stale" : ""}>
      <${View} key=${at.view} page=${page} metrics=${metrics} argument=${at.argument} go=${go} say=${setSaid} />
    </main>
    <footer class="foot">Moorline ${page.version}</footer>`;
}

render(html`<${Page} />`, document.getElementById("page"));
