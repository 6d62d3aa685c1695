<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{{hashes["style"]}}'; script-src '{{hashes["script"]}}'; img-src data:; base-uri 'none'; form-action 'none'">
<title>{{title}}</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --paper: #f6f3ec; --card: #fffdf8; --ink: #24211c; --quiet: #6d665a; --line: #d9d2c3; --mark: #8a4b1f; --lit: #f3e2c8; --wrong: #9c2b22;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #191714; --card: #211e1a; --ink: #e6dfd1; --quiet: #988f80; --line: #38332b; --mark: #d9a06c; --lit: #3a2f22; --wrong: #e58a7d; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 8rem; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 ui-sans-serif, system-ui, sans-serif; overflow-wrap: anywhere; }
header { position: sticky; top: 0; z-index: 1; background: var(--paper); border-bottom: 1px solid var(--line); padding: .7rem 1rem 0; }
h1 { font: 500 1.3rem/1.25 Georgia, "Iowan Old Style", serif; margin: 0; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
form { display: flex; align-items: center; gap: .7rem; margin: .5rem 0; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: .35rem; padding: .35rem .7rem; flex: 1 1 12rem; min-width: 0; max-width: 28rem; }
output { color: var(--quiet); font-size: .85rem; white-space: nowrap; }
nav { display: flex; gap: 1.1rem; overflow-x: auto; padding-bottom: .55rem; font-size: .88rem; scrollbar-width: none; }
nav a { white-space: nowrap; }
a { color: var(--mark); text-decoration: none; }
a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
small { color: var(--quiet); font-size: .8rem; font-weight: 400; }
main, aside { padding: 0 1rem 3rem; }
h2 { font-size: .82rem; font-weight: 600; letter-spacing: .04em; text-transform: uppercase; color: var(--quiet); margin: 1.7rem 0 .6rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .45rem; padding: .6rem .85rem .65rem; margin: .55rem 0; }
article, .u { content-visibility: auto; contain-intrinsic-size: auto 6rem; unicode-bidi: plaintext; }
article p { font: 1.06rem/1.45 Georgia, "Iowan Old Style", serif; margin: 0; }
blockquote { margin: .4rem 0 0; padding-left: .7rem; border-left: 2px solid var(--line); font-size: .9rem; color: var(--quiet); unicode-bidi: plaintext; }
blockquote b, .u b { font-weight: 600; color: var(--ink); }
article small { display: inline-block; font-family: ui-sans-serif, system-ui, sans-serif; }
ol { list-style: none; margin: .25rem 0 0; padding: 0; font-size: .92rem; }
li b { font-weight: 600; }
article .doubt { font: inherit; font-size: .92rem; margin-top: .3rem; }
.doubt, .doubt a { color: var(--wrong); }
.u { margin: 0; padding: .35rem .5rem; border-radius: .35rem; contain-intrinsic-size: auto 3.4rem; }
.u i { font-style: normal; color: var(--quiet); font-size: .8rem; margin-right: .35rem; }
.u a { font-size: .78rem; border: 1px solid var(--line); border-radius: .8rem; padding: 0 .5rem; margin-right: .25rem; white-space: nowrap; display: inline-block; max-width: 100%; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
article:target, .u:target { background: var(--lit); }
[hidden] { display: none; }
@media (min-width: 60rem) {
  html { scroll-padding-top: 0; }
  body { display: grid; grid-template: auto minmax(0, 1fr) / minmax(0, 1fr) minmax(0, 1fr); height: 100vh; }
  header { grid-column: 1 / -1; padding: .9rem 2rem 0; display: grid; grid-template-columns: 1fr minmax(0, 28rem); align-items: center; column-gap: 2rem; }
  form { margin: 0; }
  nav { grid-column: 1 / -1; padding-top: .6rem; flex-wrap: wrap; gap: .2rem 1.1rem; }
  main, aside { overflow-y: auto; scroll-padding-top: 1rem; padding: 0 2rem 3rem; }
  aside { border-left: 1px solid var(--line); }
}
</style>
</head>
<body>
<header>
<h1>{{title}}</h1>
<form role="search"><input id="search" type="search" placeholder="Search records and transcript ( / )" aria-label="Search records and transcript" autocomplete="off"><output id="found"></output></form>
<nav aria-label="Parts">
% for family, name, cards in sections:
<a href="#{{family}}">{{name}} <small>{{len(cards)}}</small></a>
% end
% if custody:
% doubts = sum(len(item["doubts"]) for item in custody)
<a href="#custody">Who has what <small>{{len(custody)}}</small>
% if doubts:
<small class="doubt">{{doubts}} doubtful</small>
% end
</a>
% end
% if refused:
<a href="#refused">Refused <small>{{len(refused)}}</small></a>
% end
<a href="#transcript">Transcript <small>{{len(units)}}</small></a>
</nav>
</header>
<main tabindex="0" aria-label="Records">
% for family, name, cards in sections:
<section id="{{family}}"><h2>{{name}}</h2>
% for anchor, text, numbers, quotes, more in cards:
<article id="{{anchor}}"><p>{{text}} <small>{{numbers}}</small></p>
% for unit in quotes:
<blockquote><a href="#u{{unit["id"]}}">{{unit["id"]}}</a> <b>{{unit["speaker"]}}</b> {{unit["text"]}}</blockquote>
% end
% if more:
<blockquote><a href="#u{{more[0]}}">and {{len(more)}} more from {{more[0]}} on</a></blockquote>
% end
</article>
% end
% if not cards:
<p><small>Nothing of the kind was found.</small></p>
% end
</section>
% end
% if custody:
<section id="custody"><h2>Who has what</h2>
% for item in custody:
<article><p>{{item["item"]}}</p><ol>
% for step in item["steps"]:
% anchor, text = told[step["occurrence"]]
<li><a href="#{{anchor}}">{{text}}</a> → <b>{{step["holder"] or "nobody"}}</b></li>
% end
</ol>
% for doubt in item["doubts"]:
<p class="doubt"><a href="#{{told[doubt["occurrence"]][0]}}">Can that be? {{doubt["text"]}}</a></p>
% end
</article>
% end
</section>
% end
% if refused:
<section id="refused"><h2>Refused</h2>
% for line in refused:
<article><small>{{line}}</small></article>
% end
</section>
% end
</main>
<aside tabindex="0" aria-label="Transcript"><h2 id="transcript">Transcript</h2>
% for unit in units:
<p class="u" id="u{{unit["id"]}}"><i>{{unit["id"]}}</i><b>{{unit["speaker"]}}</b> {{unit["text"]}}
% for anchor, text in unit["cited"]:
<a href="#{{anchor}}">{{text}}</a>
% end
</p>
% end
</aside>
<script>
"use strict";
const box = document.getElementById("search"), found = document.getElementById("found");
const rows = [...document.querySelectorAll("article, .u")], sections = [...document.querySelectorAll("section")];
let texts;

function search() {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  texts ??= rows.map((row) => row.textContent.toLowerCase());
  let count = 0;
  rows.forEach((row, number) => {
    row.hidden = !words.every((word) => texts[number].includes(word));
    count += !row.hidden;
  });
  for (const section of sections) section.hidden = words.length > 0 && !section.querySelector("article:not([hidden])");
  found.textContent = words.length ? count + " found" : "";
}

function clear() {
  box.value = "";
  search();
}

box.addEventListener("input", search);
box.form.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && box.value) clear();
  if (event.key === "/" && event.target !== box) { event.preventDefault(); box.focus(); }
});
// A link may lead to what the search hides: then all is shown again, before the browser goes there.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && document.getElementById(link.hash.slice(1))?.closest("[hidden]")) clear();
});
</script>
</body>
</html>
