// SPDX-License-Identifier: Apache-2.0
// See emit_page.hpp. All text from outside this file is escaped, and the page forbids scripts.
#include "tuner/cli/output/emit_page.hpp"

#include <fmt/format.h>

namespace attune::cli {
namespace {

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {
  color-scheme: light dark;
  --ink: #1c2430; --soft: #5b6675; --line: #d5dbe3;
  --back: #ffffff; --code: #f5f7fa; --link: #0b57a4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e3e8ee; --soft: #9aa6b5; --line: #333c48;
    --back: #14181e; --code: #1b2129; --link: #8ec1f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; padding: 1rem; color: var(--ink); background: var(--back);
  font: 15px/1.45 system-ui, sans-serif;
}
h1 { font-size: 1.3rem; margin: 0 0 .6rem; } h2 { font-size: 1.05rem; margin: 1rem 0 .4rem; }
h3 {
  font: 600 12px/1.4 ui-monospace, monospace; color: var(--soft);
  margin: 1rem 0 .2rem; overflow-wrap: anywhere;
}
a { color: var(--link); } summary { cursor: pointer; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
nav ul { columns: 18rem; font-size: 13px; padding-left: 1.2rem; }
main {
  display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr);
  gap: 1.2rem; align-items: start;
}
pre {
  margin: 0; padding: .6rem; background: var(--code); overflow-x: auto; tab-size: 2;
  border: 1px solid var(--line); border-radius: 4px; font: 12px/1.4 ui-monospace, monospace;
}
@media (max-width: 1000px) {
  main { grid-template-columns: minmax(0, 1fr); }
  dl { grid-template-columns: 1fr; }
  dt { margin-top: .3rem; }
}
@media print {
  main { display: block; }
  pre { overflow: visible; white-space: pre-wrap; }
  nav { display: none; }
}
</style>
)";

std::string escaped(std::string_view text) {
  std::string made;
  made.reserve(text.size() + text.size() / 8);
  for (const char c : text) switch (c) {
      case '&':
        made += "&amp;";
        break;
      case '<':
        made += "&lt;";
        break;
      case '>':
        made += "&gt;";
        break;
      case '"':
        made += "&quot;";
        break;
      case '\'':
        made += "&#39;";
        break;
      default:
        made += c;
    }
  return made;
}

std::string list_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string made = "<dl>\n";
  for (const auto& [name, value] : entries)
    made += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  return made + "</dl>\n";
}

// A piece of the source under its label: one of the files that the source is made of.
struct Part {
  std::string name;  // "cuda/ptx/tma.cuh"; empty for the text before the first label
  std::string_view text;
};

std::vector<Part> parts_of(std::string_view source) {
  constexpr std::string_view kLabel = "// ---- ";
  std::vector<Part> parts{{"", source}};
  for (size_t at = 0; at != std::string_view::npos;) {
    const bool labelled = source.substr(at).starts_with(kLabel);
    const size_t end = source.find('\n', at);
    if (labelled) {
      Part& before = parts.back();
      const auto begun = static_cast<size_t>(before.text.data() - source.data());
      before.text = source.substr(begun, at - begun);
      const size_t name = at + kLabel.size();
      const size_t after = end == std::string_view::npos ? source.size() : end;
      parts.push_back({std::string(source.substr(name, after - name)), source.substr(after)});
    }
    at = end == std::string_view::npos ? end : end + 1;
  }
  return parts;
}

}  // namespace

std::string to_html(const EmitPage& page) {
  const std::vector<Part> parts = parts_of(page.source);
  std::string list, source;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.text.find_first_not_of(" \n") == std::string_view::npos) continue;
    const std::string name = escaped(part.name.empty() ? "header" : part.name);
    list += fmt::format("<li><a href=\"#part{}\">{}</a></li>\n", i, name);
    source += fmt::format("<h3 id=\"part{}\">{}</h3>\n<pre>{}</pre>\n", i, name,
                          escaped(part.text.substr(part.text.find_first_not_of('\n'))));
  }
  const std::string title = escaped(page.title);
  std::string made(kHead);
  made += fmt::format("<title>{0}</title>\n</head>\n<body>\n<h1>{0}</h1>\n", title);
  made += list_of(page.facts);
  made += "<details open><summary>Resources</summary>\n" + list_of(page.resources) + "</details>\n";
  if (!page.compiler_log.empty())
    made += fmt::format("<details><summary>Compiler log</summary>\n<pre>{}</pre></details>\n",
                        escaped(page.compiler_log));
  made +=
      "<nav aria-label=\"Parts of the source\"><details><summary>Parts of the "
      "source</summary>\n<ul>\n" +
      list + "<li><a href=\"#code\">" + escaped(page.code_title) +
      "</a></li>\n</ul></details></nav>\n";
  made += "<main>\n<section aria-label=\"Source\"><h2>Source</h2>\n" + source + "</section>\n";
  made += fmt::format(
      "<section id=\"code\" aria-label=\"Machine code\"><h2>{}</h2>\n<pre>{}</pre>\n</section>\n",
      escaped(page.code_title), escaped(page.code));
  return made + "</main>\n</body>\n</html>\n";
}

}  // namespace attune::cli
