// SPDX-License-Identifier: Apache-2.0
// Writing a file whole or not at all. Used for bundles and for what the program writes.
#pragma once

#include <filesystem>
#include <string_view>

namespace attune {

// Puts `bytes` at `path`. It writes a new file beside it first (<name>.<pid>-<n>.part), where there
// was no file and no link before, and renames it when the disk has it: after a loss of power, too,
// the former text stands there or the new one. A link at `path` is replaced, not followed. A
// character device or a pipe stays where it is and gets the bytes, also behind a link (/dev/null,
// /dev/stdout); block devices, and what another user laid there, are refused (open_stream).
// `mode` is cut by the umask. Throws kIo with the path and why.
void replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0666);

}  // namespace attune
