<!doctype html><html lang="en"><meta charset="utf-8"><title>Replay of {{log}}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{{nonce}}'; base-uri 'none'; form-action 'none'">
<style>
:root { color-scheme: light dark; --line: #8884; --old: #c0392b33; --new: #27ae6033 }
body { font: 1rem/1.55 Georgia, serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.3rem } pre, .facts { font: .8rem/1.5 ui-monospace, monospace }
pre { overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere } pre.totals { white-space: pre }
nav { position: sticky; top: 0; background: Canvas; padding: .5rem 0; border-bottom: 1px solid var(--line) }
button { font: inherit; font-size: .85rem; margin: 0 .4rem .3rem 0 } button[aria-pressed=true] { font-weight: bold }
article { border-bottom: 1px solid var(--line); padding: 1rem 0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.5rem }
.text { white-space: pre-wrap; overflow-wrap: anywhere }
del { background: var(--old); text-decoration: none } ins { background: var(--new); text-decoration: none }
.law { color: light-dark(#b03020, #ff8a7a); font-weight: bold }
#blind .text { padding: 1rem; border: 1px solid var(--line); border-radius: .5rem }
body.asking #told, body:not(.asking) #blind { display: none }
body[data-show=different] article:not(.different), body[data-show=worse] article:not(.worse),
body[data-show=failed] article:not(.failed) { display: none }
@media (max-width: 45rem) { .pair { grid-template-columns: 1fr } }
</style>
<section id="blind">
<h1>Which one feels more alive?</h1>
<p id="progress" role="status"></p>
<pre id="digest"></pre>
<div class="pair"><div class="text" id="left"></div><div class="text" id="right"></div></div>
<p><button data-say="left">← the left one</button><button data-say="right">→ the right one</button>
<button data-say="even">↓ neither</button><button data-say="skip">space: skip</button></p>
<p id="tally" role="status"></p>
<p><button id="result">Show the result so far</button><button id="save">Save the verdicts</button>
<button id="anew">Begin anew</button><button id="leave">Back to the texts</button></p>
</section>
<section id="told">
<h1>Replay of {{log}}</h1>
<pre class="totals">{{totals}}</pre>
<nav>
% laws = lambda record: {finding["law"] for finding in record["findings"]} - {"repeats"}
% broke_more = lambda turn: len(laws(turn.new)) > len(laws(turn.old))
% shows = {"all": lambda turn: True, "different": lambda turn: not turn.same}
% shows["worse"] = lambda turn: turn.old["ok"] and (not turn.new["ok"] or broke_more(turn))
% shows["failed"] = lambda turn: not turn.new["ok"]
% for kind, is_so in shows.items():
<button data-show="{{kind}}" aria-pressed="{{'true' if kind == 'all' else 'false'}}">{{kind}} ({{sum(map(bool, map(is_so, turns)))}})</button>
% end
<button id="ask">Ask me, blind</button>
</nav>
% for turn in turns:
% kinds = [kind for kind, is_so in shows.items() if kind != "all" and is_so(turn)]
% told = [one["response"] if one["ok"] else f"({one.get('error', 'failed')})" for one in (turn.old, turn.new)]
% old, new = marked(*told)
<article class="{{' '.join(kinds)}}"
% if turn.old["ok"] and turn.new["ok"] and not turn.same and turn.change is None:
 data-ids="{{turn.old.get('id') or ''}} {{turn.new['id']}}"
% end
>
<details><summary class="facts">{{turn.old.get("ts", "")}} · {{turn.new["model"]}} · {{', '.join(kinds) or 'same'}}</summary>
<pre>{{turn.new["messages"][1]["content"]}}</pre></details>
<div class="pair">
% for tag, pieces, record in (("del", old, turn.old), ("ins", new, turn.new)):
<div><div class="text">\\
% for changed, words in pieces:
% if changed:
<{{tag}}>{{words}}</{{tag}}>\\
% else:
{{words}}\\
% end
% end
</div>
<p class="facts"><span class="model">{{record["model"]}}</span> · {{f"{record['latency_ms'] / 1000:.1f}"}} s
% for change in (turn.change or ()) if tag == "ins" else ():
 · {{change}}
% end
% for finding in record["findings"]:
<br><span class="law">{{finding["law"]}}</span> {{finding.get("text", "")}}
% end
</p></div>
% end
</div></article>
% end
</section>
<script nonce="{{nonce}}">
"use strict";
const byId = (id) => document.getElementById(id), all = (what, where = document) => [...where.querySelectorAll(what)];
for (const button of all("button[data-show]")) button.onclick = () => {
  document.body.dataset.show = button.dataset.show;
  for (const other of all("button[data-show]")) other.setAttribute("aria-pressed", other === button);
};

// Blind: two texts of one digest, sides by chance and remembered; who wrote them stays hidden until the end.
const pairs = all("article[data-ids]").map((article) => {
  const ids = article.dataset.ids.split(" "), texts = all(".text", article), models = all(".model", article);
  const side = (n, when) => ({ id: ids[n], text: texts[n].textContent.trim(), name: `${models[n].textContent} (${when})` });
  return { key: article.dataset.ids, digest: article.querySelector("pre").textContent, sides: [side(0, "before"), side(1, "again")] };
});
const place = "blind " + pairs.map((pair) => pair.key).join(" ");
let kept = { turned: {}, said: {} };
try { kept = { ...kept, ...JSON.parse(localStorage.getItem(place)) }; } catch { /* a browser that keeps nothing still asks */ }
const keep = () => { try { localStorage.setItem(place, JSON.stringify(kept)); } catch { /* as above */ } };
const waiting = () => pairs.find((pair) => !(pair.key in kept.said));
const turned = (pair) => (kept.turned[pair.key] ??= Math.random() < 0.5) ? [...pair.sides].reverse() : pair.sides;

function ask() {
  const pair = waiting(), [left, right] = pair ? turned(pair) : [];
  keep();
  byId("progress").textContent = `${Object.keys(kept.said).length} of ${pairs.length} pairs judged. No model is named before the last one.`;
  byId("digest").textContent = pair?.digest ?? "";
  byId("left").textContent = left?.text ?? "";
  byId("right").textContent = right?.text ?? "";
  byId("tally").textContent = pair ? "" : result();
}

function say(what) {
  const pair = waiting();
  if (!pair) return;
  const [left, right] = turned(pair).map((side) => side.id);
  const verdict = { left: { better: left, worse: right }, right: { better: right, worse: left }, even: { even: [left, right] } }[what];
  const id = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  kept.said[pair.key] = verdict ? { ts: new Date().toISOString(), id, verdict } : null; // null: skipped
  document.activeElement.blur(); // or space would press the button again
  ask();
}

// The 95 % interval of a rate (Wilson 1927), in hundredths.
function interval(won, n) {
  const z = 1.959964, share = won / n, middle = share + z * z / (2 * n), spread = 1 + z * z / n;
  const width = z * Math.sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return [middle - width, middle + width].map((end) => Math.round(100 * end / spread)).join("–");
}

const lines = () => Object.values(kept.said).filter(Boolean);

function result() {
  const won = {}, played = {};
  for (const { key, sides } of pairs) for (const { id, name } of sides) {
    const verdict = kept.said[key]?.verdict;
    if (!verdict?.better) continue;
    played[name] = (played[name] ?? 0) + 1;
    won[name] = (won[name] ?? 0) + (id === verdict.better);
  }
  const rates = Object.entries(played).map(([name, n]) => n < 10 ? `${name}: better in ${won[name]} of ${n}, too few to say`
    : `${name}: better in ${Math.round(100 * won[name] / n)} of 100 (${interval(won[name], n)}), ${n} decided`);
  return [...rates, `${lines().filter(({ verdict }) => verdict.even).length} even`].join("; ");
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines().map((line) => JSON.stringify(line) + "\n"), { type: "application/jsonl" }));
  link.download = "blind.jsonl";
  link.click();
}

for (const button of all("button[data-say]")) button.onclick = () => say(button.dataset.say);
byId("ask").hidden = !pairs.length;
byId("ask").onclick = () => { document.body.classList.add("asking"); ask(); };
byId("leave").onclick = () => document.body.classList.remove("asking");
byId("result").onclick = () => { byId("tally").textContent = result(); };
byId("save").onclick = save;
byId("anew").onclick = () => { kept = { turned: {}, said: {} }; ask(); };
document.onkeydown = (event) => {
  const what = { ArrowLeft: "left", ArrowRight: "right", ArrowDown: "even", " ": "skip" }[event.key];
  if (!what || !document.body.classList.contains("asking") || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  if (!event.repeat) say(what); // a key that is held down judges once
};
</script>
