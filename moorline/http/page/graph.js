// The graph of a job: a box for every chain of operators, coloured by how its subtasks spend their time.

import { Graph, layout } from "./vendor/dagre.js";
import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { count, duration, printable, rate, share } from "./format.js";
import { Meter, Name } from "./parts.js";

const WIDTH = 236;
const NARROW = 190;
const HEAD = 74;
const LINE = 22;
const SHOWN = 4;
const SMALLEST = 0.6;

/** busy, held or calm: what a chain of operators is to be coloured by. */
export function mood(vertex) {
  if (!vertex || !vertex.subtasks) return "calm";
  if (vertex.most_back_pressured >= 0.5) return "held";
  if (vertex.most_busy >= 0.8) return "hot";
  return vertex.busy + vertex.back_pressured > 0.05 ? "busy" : "calm";
}

/** Most that one subtask gets, by what they get on average: 1 is even. */
export function skew(subtasks, figure = "records_in") {
  const values = (subtasks || []).map((s) => s[figure]);
  const sum = values.reduce((a, b) => a + b, 0);
  return values.length > 1 && sum > 0 ? (Math.max(...values) * values.length) / sum : 1;
}

function place(graph, across) {
  const g = new Graph({ multigraph: true });
  g.setGraph({ rankdir: across ? "LR" : "TB", nodesep: across ? 26 : 16, ranksep: across ? 76 : 48, marginx: 6, marginy: 6 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const v of graph.vertices) {
    const lines = Math.min(v.operators.length, SHOWN) + (v.operators.length > SHOWN ? 1 : 0);
    g.setNode(String(v.id), { width: across ? WIDTH : NARROW, height: HEAD + LINE * lines });
  }
  graph.links.forEach((link, n) => {
    const [from, to] = link.feedback ? [link.target, link.source] : [link.source, link.target];
    g.setEdge(String(from), String(to), { minlen: 1 }, String(n));
  });
  layout(g);
  const { width, height } = g.graph();
  const edges = g.edges().map((e) => ({ link: graph.links[Number(e.name)], points: g.edge(e).points }));
  return { width, height, edges, node: (id) => g.node(String(id)) };
}

function curve(points, back) {
  const p = back ? [...points].reverse() : points;
  let d = `M${p[0].x},${p[0].y}`;
  for (let n = 1; n < p.length - 1; n += 1) {
    const mid = { x: (p[n].x + p[n + 1].x) / 2, y: (p[n].y + p[n + 1].y) / 2 };
    d += ` Q${p[n].x},${p[n].y} ${n === p.length - 2 ? p[n + 1].x : mid.x},${n === p.length - 2 ? p[n + 1].y : mid.y}`;
  }
  return p.length === 2 ? `${d} L${p[1].x},${p[1].y}` : d;
}

export function JobGraph({ graph, metrics, chosen, onChoose }) {
  const frame = useRef(null);
  const [room, setRoom] = useState(900);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setRoom(entry.contentRect.width));
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const across = room >= 620;
  const shape = JSON.stringify([graph.vertices, graph.links]);
  const placed = useMemo(() => place(graph, across), [shape, across]);
  const by = new Map((metrics?.vertices || []).map((v) => [v.id, v]));
  const scale = Math.max(SMALLEST, Math.min(1, room / placed.width));
  return html`<div class="graph" ref=${frame}>
    <div class="canvas" style=${{ width: `${placed.width * scale}px`, height: `${placed.height * scale}px` }}>
      <div class="world" style=${{ width: `${placed.width}px`, height: `${placed.height}px`, transform: `scale(${scale})` }}>
        <svg width=${placed.width} height=${placed.height} aria-hidden="true">
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" /></marker></defs>
          ${placed.edges.map(({ link, points }, n) => {
            const middle = points[Math.floor(points.length / 2)];
            const held = (by.get(link.source)?.back_pressured || 0) >= 0.5;
            return html`<g key=${n} class=${`edge${held ? " held" : ""}${link.feedback ? " back" : ""}`}>
              <path d=${curve(points, link.feedback)} marker-end="url(#arrow)" />
              <text x=${middle.x} y=${middle.y - 7} text-anchor="middle">${printable(link.partitioning)}${link.tag ? ` · ${printable(link.tag)}` : ""}</text>
            </g>`;
          })}
        </svg>
        ${graph.vertices.map((v) => html`<${Box} key=${v.id} vertex=${v} figures=${by.get(v.id)} all=${metrics?.operators || {}}
          operators=${graph.operators} at=${placed.node(v.id)} chosen=${chosen === v.id} onChoose=${onChoose} />`)}
      </div>
    </div>
  </div>`;
}

function Box({ vertex, figures, all, operators, at, chosen, onChoose }) {
  const style = { left: `${at.x - at.width / 2}px`, top: `${at.y - at.height / 2}px`, width: `${at.width}px`, height: `${at.height}px` };
  const uids = vertex.operators.slice(0, SHOWN);
  const lags = vertex.operators.map((uid) => all[uid]?.watermark_lag_ms).filter((lag) => lag !== null && lag !== undefined);
  const uneven = skew(figures?.subtasks);
  const isHeld = figures?.most_back_pressured >= 0.5;
  return html`<button type="button" class=${`box ${mood(figures)}`} style=${style} aria-pressed=${chosen} onClick=${() => onChoose(vertex.id)}>
    <span class="ops">
      ${uids.map((uid) => html`<span key=${uid} class="op"><em>${operators[uid]?.kind || ""}</em><${Name} of=${uid} /></span>`)}
      ${vertex.operators.length > SHOWN ? html`<span class="op rest">and ${vertex.operators.length - SHOWN} more</span>` : null}
    </span>
    <span class="figures">
      <b title="records in and out per second">${figures ? html`${count(figures.records_in_per_second)} → ${rate(figures.records_out_per_second)}` : "–"}</b>
      <span title="subtasks">×${vertex.parallelism}</span>
    </span>
    <${Meter} busy=${figures?.busy || 0} held=${figures?.back_pressured || 0} wide=${true} />
    <span class="figures small">
      <span>${figures ? (isHeld ? `back-pressured ${share(figures.most_back_pressured)}` : `busy ${share(figures.busy)}`) : ""}</span>
      <span>${uneven >= 1.5 ? `skew ${uneven.toFixed(1)}×` : lags.length && !isHeld ? `lag ${duration(Math.max(...lags))}` : ""}</span>
    </span>
  </button>`;
}
