# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<folder of page.css and page.js> -DOUT=<file.cpp> -P embed_report.cmake
# Writes kReportAssets (report_data.hpp) from the files.
file(READ "${ROOT}/page.css" style)
file(READ "${ROOT}/page.js" script)
file(WRITE "${OUT}.new" "#include \"tuner/cli/report/report_data.hpp\"\n\nnamespace attune::cli {\n\nconst ReportAssets kReportAssets{R\"attune_text(${style})attune_text\",
                                R\"attune_text(${script})attune_text\"};\n\n}  // namespace attune::cli\n")
file(COPY_FILE "${OUT}.new" "${OUT}" ONLY_IF_DIFFERENT)
