// SPDX-License-Identifier: Apache-2.0
// Joins data, style and script to a page; see report_data.hpp.
#include "tuner/cli/report/report_data.hpp"

#include <fmt/format.h>

#include <string_view>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/json_text.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Encodes the 32 bytes of a SHA-256, given as hex digits, in 44 characters of base64.
std::string base64_of_hex(const std::string& hex) {
  std::string text;
  unsigned bits = 0;
  int held = 0;
  for (const char digit : hex) {
    bits = bits << 4 | static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    held += 4;
    if (held < 6) continue;
    held -= 6;
    text += kBase64[bits >> held & 63];
  }
  if (held > 0) text += kBase64[bits << (6 - held) & 63];
  text.append((4 - text.size() % 4) % 4, '=');
  return text;
}

// Returns JSON with "<" written as \u003c, so that no text in it can end its block.
std::string inert(const Json& data) {
  const std::string json = to_json_text(data);
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace

std::string report_page(const Json& data) {
  const std::string policy =
      fmt::format("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'",
                  base64_of_hex(sha256_hex(kReportAssets.script)));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>attune report</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main id=\"page\"><noscript>A script in this page draws "
      "it, but scripts are switched off here.</noscript></main>\n"
      "<script type=\"application/json\" id=\"data\">{}</script>\n<script>{}</script>\n"
      "</body>\n</html>\n",
      policy, kReportAssets.style, inert(data), kReportAssets.script);
}

}  // namespace attune::cli
