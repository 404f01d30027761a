// SPDX-License-Identifier: Apache-2.0
// Runs disassemblers of the system; see emit_page.hpp.
#include "tuner/cli/output/emit_page.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "generator/core/system/error.hpp"
#include "tuner/cli/output/output.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

// A temporary folder of this process; deleted at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code failed;
    std::string pattern = (fs::temp_directory_path(failed) / "attune-emit-XXXXXX").string();
    if (failed)
      throw Error(ErrorCode::kIo,
                  "the folder for temporary files (TMPDIR) cannot be used: " + failed.message());
    if (::mkdtemp(pattern.data()) == nullptr)
      throw Error(ErrorCode::kIo, pattern + ": " + std::strerror(errno));
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

// Runs a program with its output in the file `out`. Returns true if it succeeded. If SIGCHLD is
// ignored (programs inherit this setting), the system reports that the program ended but not how.
// Then this returns true, and the caller judges by the output.
bool runs(const std::vector<std::string>& command, const fs::path& out) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int failure =
      posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return false;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return errno == ECHILD;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::optional<Disassembly> disassemble(std::string_view image, const Arch& arch) {
  using Command = std::vector<std::string>;
  const std::vector<Command> cuda{{"nvdisasm", "-c"},
                                  {"/usr/local/cuda/bin/nvdisasm", "-c"},
                                  {"cuobjdump", "-sass"},
                                  {"/usr/local/cuda/bin/cuobjdump", "-sass"}};
  const std::vector<Command> cpu{{"objdump", "-d", "-C", "--no-show-raw-insn"},
                                 {"llvm-objdump", "-d", "-C", "--no-show-raw-insn"}};
  const ScratchFolder folder;
  write_file(folder / "image", image);
  for (Command command : arch.target == Target::kCuda ? cuda : cpu) {
    command.push_back((folder / "image").string());
    if (!runs(command, folder / "text")) continue;
    std::string text = read_file(folder / "text");
    for (size_t at; (at = text.find(command.back())) != std::string::npos;)
      text.replace(at, command.back().size(), "image");  // hides the temporary path
    if (!text.empty()) return Disassembly{fs::path(command.front()).filename().string(), text};
  }
  return std::nullopt;
}

}  // namespace attune::cli
