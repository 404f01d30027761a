# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<templates dir> -DOUT=<file.cpp> -DFILES=<a;b;c> -P embed_templates.cmake
# Writes the table behind generator/source_bundle.hpp: path and text of every file, as raw strings.
string(REPLACE "|" ";" FILES "${FILES}")
set(text "#include \"generator/source_bundle.hpp\"\n\nnamespace attune {\n\nconst std::vector<BundledFile>& bundled_files() {\n  static const std::vector<BundledFile> files{\n")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" content)
  string(APPEND text "      {\"${file}\", R\"attune_text(${content})attune_text\"},\n")
endforeach()
string(APPEND text "  };\n  return files;\n}\n\n}  // namespace attune\n")
file(WRITE "${OUT}.new" "${text}")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
