// SPDX-License-Identifier: Apache-2.0
// Writes a file whole or not at all. Used for bundles and for files that the program writes.
#pragma once

#include <filesystem>
#include <string_view>

namespace attune {

// Puts `bytes` at `path`. It first writes a new file next to it (<name>.<pid>-<n>.part), where no
// file or link was before, and renames it once it is on the disk. So even after a loss of power
// either the old text or the new one is there. A link at `path` is replaced, not followed. A
// character device or a pipe stays and gets the bytes, also behind a link (/dev/null, /dev/stdout).
// Block devices, and files that another user put there, are refused (open_stream). The umask limits
// `mode`. Throws kIo with the path and the reason.
void replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0666);

}  // namespace attune
