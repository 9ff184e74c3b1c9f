// What the page asks the server for: the token, a request, and a question that is asked again each second.
//
// The token comes in the fragment of the URL, which a browser never sends. It is taken out of the address at once, kept
// for this tab alone, and sent in the Authorization header.

import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

const KEY = "moorline-token";
const PATIENCE_MS = 20000;

/** Text from an address. What cannot be decoded stays as it is: anyone can write a link to this page. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function takeToken() {
  const found = /[#&]token=([^&]+)/.exec(location.hash);
  if (found) {
    keepToken(decoded(found[1]));
    history.replaceState(null, "", location.pathname + "#/");
  }
  return sessionStorage.getItem(KEY) || "";
}

export function keepToken(token) {
  sessionStorage.setItem(KEY, token.trim());
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Asks the server: GET, or POST with `content`. Throws `Refused` with a sentence for people. */
export async function ask(path, content, patienceMs = PATIENCE_MS) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}` };
  const options = { headers, cache: "no-store", credentials: "omit", redirect: "error" };
  if (content !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(content) });
  }
  const control = new AbortController();
  const timer = setTimeout(() => control.abort(), patienceMs);
  let response, answer;
  try {
    response = await fetch(path, { ...options, signal: control.signal });
    answer = await response.json();
  } catch (error) {
    const late = control.signal.aborted;
    throw new Refused(0, late ? "There was no answer in time." : "The driver cannot be reached: has the job ended?");
  } finally {
    clearTimeout(timer);
  }
  if (!response.ok) throw new Refused(response.status, String(answer.error || `It answered ${response.status}.`));
  return answer;
}

/** The answer to a GET that is repeated: {data, error}. The last answer stays while the server cannot be reached. */
export function usePolled(path, everyMs = 1000) {
  const [state, setState] = useState({ data: null, error: null, path });
  useEffect(() => {
    let timer = 0;
    let over = false;
    const look = async () => {
      if (!document.hidden) {
        try {
          const data = await ask(path);
          if (!over) setState({ data, error: null, path });
        } catch (error) {
          if (!over) setState((before) => ({ data: before.path === path ? before.data : null, error, path }));
        }
      }
      if (!over && everyMs) timer = setTimeout(look, everyMs);
    };
    const shown = () => {
      if (!document.hidden) {
        clearTimeout(timer);
        look();
      }
    };
    look();
    if (everyMs) document.addEventListener("visibilitychange", shown);
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [path, everyMs]);
  return state.path === path ? state : { data: null, error: null };
}

/**
 * A question that is asked when somebody wants to know: [state, ask, forget]. state: {data, content, error, busy}.
 * What is shown always belongs to `content`: another question takes the old answer away at once, and an answer that
 * comes after a newer question is dropped.
 */
export function useAsked() {
  const [state, setState] = useState(NOTHING_ASKED);
  const newest = useRef(0);
  const run = async (path, content, patienceMs) => {
    const number = ++newest.current;
    const answered = (outcome) => number === newest.current && setState({ ...NOTHING_ASKED, content, ...outcome });
    setState((before) => ({ data: same(before.content, content) ? before.data : null, content, error: null, busy: true }));
    try {
      answered({ data: await ask(path, content, patienceMs) });
    } catch (error) {
      answered({ error });
    }
  };
  const forget = () => {
    newest.current++;
    setState(NOTHING_ASKED);
  };
  return [state, run, forget];
}

const NOTHING_ASKED = { data: null, content: null, error: null, busy: false };

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
