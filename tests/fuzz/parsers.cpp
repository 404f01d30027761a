// SPDX-License-Identifier: Apache-2.0
// The parsers behind the fuzzers; see parsers.hpp.
#include "tests/fuzz/parsers.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "cache/exchange.hpp"
#include "cache/pin_file.hpp"
#include "generator/compile/cpu/elf_link.hpp"
#include "generator/compile/elf_file.hpp"
#include "generator/compile/image_info.hpp"
#include "generator/core/problem/config.hpp"
#include "generator/core/problem/problem.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "generator/score/print/source_text.hpp"
#include "runtime/bundles/bundle.hpp"
#include "runtime/bundles/bundle_manifest.hpp"
#include "tuner/measure/peer_times.hpp"
#include "tuner/models/workload.hpp"

namespace attune::testing {
namespace {

// Aborts if a printed value is read back as another value.
void same(const std::string& first, const std::string& second) {
  if (first == second) return;
  std::fprintf(stderr, "read again it differs:\n%s\n%s\n", first.c_str(), second.c_str());
  std::abort();
}

void read_problem(std::string_view text) {
  const Problem problem = parse_problem(text);
  const std::string canonical = to_text(problem);
  same(canonical, to_text(parse_problem(canonical)));
  to_text(spec_of(problem));
  bucket_of(shape_of(problem));
}

void read_config(std::string_view text) {
  const std::string canonical = parse_config(text).to_text();
  same(canonical, parse_config(canonical).to_text());
}

void read_spec(std::string_view text) {
  const std::string canonical = to_text(parse_spec_text(text));
  same(canonical, to_text(parse_spec_text(canonical)));
}

void read_shape(std::string_view text) {
  const Shape shape = parse_shape_text(text);
  same(to_text(shape), to_text(parse_shape_text(to_text(shape))));
  bucket_of(shape);
}

// Parses a score or a mask; the first byte says which.
void read_score(std::string_view bytes) {
  const score::Declarations declarations{
      {{"slopes", CaptureType::kFp32, 1}, {"doc", CaptureType::kInt64, 2}},
      {{"window", score::Type::kInt}, {"on", score::Type::kBool}}};
  if (bytes.empty()) return;
  const score::Kind kind = bytes.front() == 'm' ? score::Kind::kMask : score::Kind::kScore;
  const std::string text(bytes.substr(1));
  const score::Program program = score::parse(text, kind, declarations, "program");
  const std::string canonical = score::canonical_text(program);
  const score::Program again =
      score::parse(canonical, kind, {program.captures(), program.scalars()}, "program");
  if (!(again == program)) same(canonical, score::canonical_text(again) + " (another program)");
  score::source_text(program);
}

// Parses a program with declarations at its start, as for --score-mod.
void read_program(std::string_view bytes) {
  if (bytes.empty()) return;
  const score::Kind kind = bytes.front() == 'm' ? score::Kind::kMask : score::Kind::kScore;
  read_user_program(std::string(bytes.substr(1)), kind, "program");
}

// Parses the export of a store.
void read_export(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::ostringstream out;
  export_lines(import_lines(in), out);
}

// Parses the pins as they are, and again with the SHA-256 that fits their lines.
void read_pins(std::string_view text) {
  try {
    parse_pin_file(text, "pins");
  } catch (const Error&) {
  }
  const size_t end = text.rfind("sha256 ");
  const std::string body(text.substr(0, end));
  const std::string sealed = body + "sha256 " + sha256_hex(body) + "\n";
  same(sealed, parse_pin_file(sealed, "pins").text());
}

void read_manifest(std::string_view text) {
  const std::string name = "manifest.json";
  manifest_text(parse_manifest(std::string(text), name), ManifestTime::kNone);
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

// Opens a bundle of one file. Its index gets a valid checksum, so that the data after it is read
// too.
void read_bundle(std::string_view bytes) {
  constexpr size_t kSummed = 32, kHead = 96;
  std::string sealed(bytes);
  if (sealed.size() > kHead) {
    for (int i = 0; i < 8; ++i) sealed[24 + i] = static_cast<char>(sealed.size() >> (8 * i));
    const uint64_t manifest = little_endian(bytes.substr(16, 8));
    if (manifest <= sealed.size() - kHead) {
      const std::string_view index = std::string_view(sealed).substr(kHead, manifest);
      const std::string sum = sha256_hex(std::string_view(sealed).substr(0, kSummed), index);
      sealed.replace(kSummed, sum.size(), sum);
    }
  }
  const Bundle bundle = Bundle::open_memory(sealed);
  bundle.faults();
  bundle.archs();
  bundle.winners();
}

// A file without a name, for code that reads files.
class UnnamedFile {
 public:
  explicit UnnamedFile(std::string_view bytes) : handle_(memfd_create("fuzz", MFD_CLOEXEC)) {
    if (handle_ < 0 || ::write(handle_, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
      std::abort();
  }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  ~UnnamedFile() { ::close(handle_); }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(handle_); }

 private:
  const int handle_;
};

void read_capture(std::string_view text) {
  const UnnamedFile file(text);
  workload_from_captures({file.path()});
}

void read_model(std::string_view text) {
  const UnnamedFile file(text);
  workload_from_model(file.path().string(), {}, Target::kCpu);
}

void read_peers(std::string_view text) {
  const UnnamedFile file(text);
  read_peer_times(file.path());
}

// Parses a log of ptxas, which contains resources.
void read_log(std::string_view text) {
  ImageInfo info;
  add_log_info(text, &info);
  image_fault(info);
}

// Links a host object of either machine at an address where nothing runs.
void read_object(std::string_view bytes) {
  constexpr LibraryFunction kFunctions[] = {{"memcpy", 0x1000}, {"expf", 0x2000}};
  read_image_info(bytes, "entry");
  const std::optional<ElfFile> elf = ElfFile::open(bytes);
  const uint16_t machine = elf && elf->header().e_machine == EM_AARCH64 ? EM_AARCH64 : EM_X86_64;
  const LinkedObject linked(bytes, machine, kFunctions, 4096);
  std::string memory(linked.bytes(), '\0');
  linked.write(memory.data(), uint64_t{0x7f0000000000});
  linked.function("entry");
}

}  // namespace

const Parser kParsers[] = {
    {"problem", read_problem}, {"config", read_config},   {"spec", read_spec},
    {"shape", read_shape},     {"score", read_score},     {"program", read_program},
    {"export", read_export},   {"pins", read_pins},       {"manifest", read_manifest},
    {"bundle", read_bundle},   {"capture", read_capture}, {"model", read_model},
    {"peers", read_peers},     {"log", read_log},         {"object", read_object}};
const int kNumParsers = sizeof kParsers / sizeof kParsers[0];

}  // namespace attune::testing
