// Numbers, times and names as people read them.

const UNITS = ["", "k", "M", "G", "T"];

/** 1234567 -> "1.23 M"; whole numbers below 10,000 are written out. */
export function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let amount = Math.abs(value);
  if (amount < 10000) return amount < 100 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  let unit = 0;
  while (amount >= 1000 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${value < 0 ? "−" : ""}${amount.toPrecision(3)} ${UNITS[unit]}`;
}

/** many(1, "attempt") -> "1 attempt"; many(2, "attempt") -> "2 attempts". */
export const many = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

export const rate = (value) => (value === null || value === undefined ? "–" : `${count(value)}/s`);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let amount = Math.abs(value);
  let unit = 0;
  while (amount >= 1024 && unit < units.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${value < 0 ? "−" : ""}${unit && amount < 100 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

/** Milliseconds: "850 ms", "12.3 s", "4 min 10 s", "2 h 5 min", "3 d 4 h". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const pad = (number) => String(number).padStart(2, "0");

/** A time of today as 14:05:09, and another one with its date. */
export function time(ms) {
  if (ms === null || ms === undefined) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return "–";
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock}`;
}

export const ago = (ms) => (ms ? `${duration(Math.max(0, Date.now() - ms))} ago` : "–");

export const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 100)} %`);

/** A name without what would not be seen, or would change how others are: control and direction characters. */
export function printable(text) {
  return String(text).replace(
    /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** A value as `http/wire.py` writes it, as Python would show it. */
export function value(thing, depth = 0) {
  if (depth > 20) return "…";
  if (thing === null || thing === undefined) return "None";
  if (thing === true) return "True";
  if (thing === false) return "False";
  if (typeof thing === "number") return String(thing);
  if (typeof thing === "string") return `'${printable(thing)}'`;
  const all = (list) => list.map((part) => value(part, depth + 1)).join(", ");
  if (Array.isArray(thing)) return `[${all(thing)}]`;
  const names = Object.keys(thing);
  const inner = thing[names[0]];
  if (names.length === 1) {
    if (names[0] === "int" && typeof inner === "string") return printable(inner);
    if (names[0] === "tuple" && Array.isArray(inner)) return `(${all(inner)}${inner.length === 1 ? "," : ""})`;
    if (names[0] === "set" && Array.isArray(inner)) return inner.length ? `{${all(inner)}}` : "set()";
    if (names[0] === "frozenset" && Array.isArray(inner)) return `frozenset({${all(inner)}})`;
    if (names[0] === "dict" && Array.isArray(inner))
      return `{${inner.map(([k, v]) => `${value(k, depth + 1)}: ${value(v, depth + 1)}`).join(", ")}}`;
    if (["float", "date", "datetime", "time", "uuid", "decimal", "bytes", "timedelta", "encoded"].includes(names[0]))
      return `${names[0]}(${value(inner, depth + 1)})`;
  }
  return `{${names.map((name) => `'${printable(name)}': ${value(thing[name], depth + 1)}`).join(", ")}}`;
}
