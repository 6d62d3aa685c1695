<!doctype html><html lang="en"><meta charset="utf-8"><title>Replay of {{name}}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --line: #8884; --old: #c0392b33; --new: #27ae6033 }
body { font: 1rem/1.55 Georgia, serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.3rem } pre, .facts { font: .8rem/1.5 ui-monospace, monospace }
pre { overflow-x: auto; white-space: pre-wrap } pre.totals { white-space: pre }
nav { position: sticky; top: 0; background: Canvas; padding: .5rem 0; border-bottom: 1px solid var(--line) }
button { font: inherit; font-size: .85rem; margin-right: .4rem } button[aria-pressed=true] { font-weight: bold }
article { border-bottom: 1px solid var(--line); padding: 1rem 0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem }
.pair > div, #left, #right { white-space: pre-wrap; overflow-wrap: anywhere }
del { background: var(--old); text-decoration: none } ins { background: var(--new); text-decoration: none }
.facts { white-space: normal } .law { color: light-dark(#b03020, #ff8a7a); font-weight: bold }
#blind { display: none } body.asking #blind { display: block } body.asking #told { display: none }
#blind .pair { margin: 1.5rem 0 } #blind .pair > div { padding: 1rem; border: 1px solid var(--line); border-radius: .5rem }
@media (max-width: 45rem) { .pair { grid-template-columns: 1fr } }
body[data-show=different] article:not(.different), body[data-show=worse] article:not(.worse),
body[data-show=failed] article:not(.failed) { display: none }
</style>
<section id="blind">
<h1>Which one is better?</h1>
<p id="progress"></p>
<details><summary class="facts">the digest that both were told from</summary><pre id="digest"></pre></details>
<div class="pair"><div id="left"></div><div id="right"></div></div>
<p><button data-say="left">← the left one</button><button data-say="right">→ the right one</button>
<button data-say="even">↓ neither</button><button data-say="skip">space: skip</button></p>
<p><button id="result">Show the result so far</button><button id="save">Save the verdicts</button>
<button id="leave">Back to the texts</button></p>
<p id="tally" role="status"></p>
</section>
<section id="told">
<h1>Replay of {{name}}</h1>
<pre class="totals">{{totals}}</pre>
<nav>
% for show, count in counts.items():
<button data-show="{{show}}" aria-pressed="{{'true' if show == 'all' else 'false'}}">{{show}} ({{count}})</button>
% end
<button id="ask">Ask me, blind</button>
</nav>
%# -----
<article class="{{' '.join(kinds)}}"
% if asks:
 data-old="{{turn.old.get('id')}}" data-new="{{turn.new['id']}}" data-models="{{turn.old['model']}}&#10;{{turn.new['model']}}"
% end
>
<details><summary class="facts">{{turn.old.get("ts", "")}} · {{turn.new["model"]}} · {{', '.join(kinds) or 'same'}}</summary>
<pre>{{turn.new["messages"][1]["content"]}}</pre></details>
<div class="pair">
% for side, words in (("old", old), ("new", new)):
<div><div class="text">\\
% for mark, text in words:
% if mark:
<{{tag[side]}}>{{text}}</{{tag[side]}}>\\
% else:
{{text}}\\
% end
% end
</div>
<p class="facts">{{facts[side]}}
% for finding in laws[side]:
<br><span class="law">{{finding["law"]}}</span> {{finding["text"]}}
% end
</p></div>
% end
</div></article>
%# -----
</section>
<script>
"use strict";
const byId = (id) => document.getElementById(id), all = (what) => [...document.querySelectorAll(what)];
for (const button of all("button[data-show]")) button.onclick = () => {
  document.body.dataset.show = button.dataset.show;
  for (const other of all("button[data-show]")) other.setAttribute("aria-pressed", other === button);
};

// Blind: two texts of one digest, sides by chance and remembered; who wrote them stays hidden until the end.
const pairs = all("article[data-old]").map((article) => {
  const [old, fresh] = [...article.querySelectorAll(".text")].map((text) => text.textContent);
  const [model, other] = article.dataset.models.split("\n");
  return { digest: article.querySelector("pre").textContent, key: article.dataset.old + article.dataset.new,
           sides: [{ id: article.dataset.old, text: old, name: `${model} (before)` },
                   { id: article.dataset.new, text: fresh, name: `${other} (again)` }] };
});
const place = "blind " + pairs.map((pair) => pair.key).join(" ").slice(0, 500);
let kept = { turned: {}, said: {} };
try { kept = { ...kept, ...JSON.parse(localStorage.getItem(place)) }; } catch { /* a browser that keeps nothing still asks */ }
const waiting = () => pairs.find((pair) => !(pair.key in kept.said));
const shown = (pair) => (kept.turned[pair.key] ??= Math.random() < 0.5) ? [...pair.sides].reverse() : pair.sides;
const keep = () => { try { localStorage.setItem(place, JSON.stringify(kept)); } catch { /* as above */ } };

function ask() {
  const pair = waiting();
  byId("progress").textContent = `${Object.keys(kept.said).length} of ${pairs.length} pairs judged. No model is named until the last one.`;
  for (const id of ["left", "right"]) byId(id).textContent = "";
  if (!pair) return result();
  const [left, right] = shown(pair);
  keep();
  byId("digest").textContent = pair.digest;
  byId("left").textContent = left.text.trim();
  byId("right").textContent = right.text.trim();
}

function say(what) {
  const pair = waiting();
  if (!pair) return;
  const [left, right] = shown(pair).map((side) => side.id), ts = new Date().toISOString();
  const verdict = { left: { better: left, worse: right }, right: { better: right, worse: left }, even: { even: [left, right] } }[what];
  const id = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  kept.said[pair.key] = verdict ? { ts, id, verdict } : null;
  keep();
  ask();
}

// The 95 % interval of a rate (Wilson 1927), in hundredths.
function interval(won, n) {
  const z = 1.959964, share = won / n, middle = share + z * z / (2 * n), spread = 1 + z * z / n;
  const width = z * Math.sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return [middle - width, middle + width].map((rate) => Math.round(100 * rate / spread)).join("–");
}

function result() {
  const lines = Object.values(kept.said).filter(Boolean).map((line) => line.verdict), won = {}, played = {};
  for (const { better, worse } of lines) for (const { sides } of pairs) for (const { id, name } of sides) {
    if (id === better) won[name] = (won[name] ?? 0) + 1;
    if (id === better || id === worse) played[name] = (played[name] ?? 0) + 1;
  }
  const rates = Object.entries(played).map(([name, n]) => `${name}: better in ${Math.round(100 * (won[name] ?? 0) / n)} of 100 (${interval(won[name] ?? 0, n)}), ${n} decided`);
  byId("tally").textContent = [...rates, `${lines.filter((one) => one.even).length} even`].join("; ");
}

function save() {
  const lines = Object.values(kept.said).filter(Boolean).map((line) => JSON.stringify(line) + "\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  link.download = "blind.jsonl";
  link.click();
}

for (const button of all("button[data-say]")) button.onclick = () => say(button.dataset.say);
byId("ask").onclick = () => { document.body.classList.add("asking"); ask(); };
byId("leave").onclick = () => document.body.classList.remove("asking");
byId("result").onclick = result;
byId("save").onclick = save;
byId("ask").hidden = !pairs.length;
document.onkeydown = (event) => {
  const what = { ArrowLeft: "left", ArrowRight: "right", ArrowDown: "even", " ": "skip" }[event.key];
  if (!what || !document.body.classList.contains("asking")) return;
  event.preventDefault();
  say(what);
};
</script>
