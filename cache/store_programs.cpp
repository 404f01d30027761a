// SPDX-License-Identifier: Apache-2.0
// Programs: the texts of the digests that problems name. Each text is checked against its digest
// when it is read.
#include <fmt/format.h>

#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"
#include "generator/score/language/parse.hpp"

namespace attune {
namespace {

// The most bytes of a program's text and of the lines that declare its captures and scalars.
constexpr size_t kMostProgramBytes = 2 * score::kMaxTextBytes;

StoredProgram read_program(Statement& row) {
  StoredProgram program;
  std::string digest;
  int kind = 0;
  row.read(digest, kind, program.text);
  if (kind != static_cast<int>(score::Kind::kScore) && kind != static_cast<int>(score::Kind::kMask))
    throw Error(ErrorCode::kStore, fmt::format("program kind {} is not known", kind));
  program.kind = static_cast<score::Kind>(kind);
  program.digest = parse_program_digest(digest);
  adopt(program);
  return program;
}

}  // namespace

void ensure_program(Database& database, const StoredProgram& program) {
  Statement insert(database,
                   "INSERT INTO program (digest, kind, text) VALUES (?, ?, ?) ON CONFLICT (digest) "
                   "DO UPDATE SET kind = excluded.kind, text = excluded.text"
                   " WHERE (kind, text) <> (excluded.kind, excluded.text)");
  insert.bind(to_text(program.digest), static_cast<int>(program.kind), program.text).run();
}

bool has_program(Database& database, const ProgramDigest& digest) {
  const std::string wanted = to_text(digest);
  Statement select(database, "SELECT digest, kind, text FROM program WHERE digest = ?");
  select.most_text(kMostProgramBytes).bind(wanted);
  bool found = false;
  for_each_row(select, "program",
               [&](Statement& row) { found = read_program(row).digest == digest; });
  return found;
}

std::vector<StoredProgram> read_all_programs(Database& database) {
  std::vector<StoredProgram> programs;
  Statement select(database, "SELECT digest, kind, text FROM program ORDER BY digest");
  select.most_text(kMostProgramBytes);
  for_each_row(select, "program", [&](Statement& row) { programs.push_back(read_program(row)); });
  return programs;
}

std::vector<StoredProgram> Store::programs() const { return impl_->read(read_all_programs); }

}  // namespace attune
