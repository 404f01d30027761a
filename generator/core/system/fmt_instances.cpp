// SPDX-License-Identifier: Apache-2.0
// Compiles {fmt}'s non-header part into our own library. So libattune.so needs no libfmt at run
// time, and all other files keep including the light headers. Follows the documented instantiation
// list of {fmt} 8 and 9; other versions link libfmt.
#include <fmt/core.h>

#if FMT_VERSION >= 90000 && FMT_VERSION < 100000
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API locale_ref::locale_ref(const std::locale&);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view,
                                 basic_format_args<buffer_context<char>>, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
#endif
