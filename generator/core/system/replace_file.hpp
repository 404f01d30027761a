// SPDX-License-Identifier: Apache-2.0
// Writes a file atomically. Used for bundles and for files that the program writes.
#pragma once

#include <filesystem>
#include <string_view>

namespace attune {

// Writes `bytes` to `path`. First writes a new file next to it (<name>.<pid>-<n>.part), under a
// name that did not exist. Renames that file once it is on the disk. So after a crash or power
// failure, `path` has either the old or the new contents.
//
// A link at `path` is replaced, not followed. A character device or a pipe receives the bytes, also
// through a link (/dev/null, /dev/stdout). Block devices, and FIFOs or links of other users, are
// refused (open_stream). The umask limits `mode`. Throws kIo with the path and the reason.
void replace_file(const std::filesystem::path& path, std::string_view bytes, unsigned mode = 0666);

}  // namespace attune
