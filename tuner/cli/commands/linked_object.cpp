// SPDX-License-Identifier: Apache-2.0
// Writes ELF64 without a library: six sections, no relocation; see bundle_output.hpp. The constants
// are from the System V ABI (ELF-64 Object File Format 1.5).
#include "tuner/cli/output/bundle_output.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>

#include "generator/core/system/error.hpp"

namespace attune::cli {
namespace {

#if defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_X86_64;
#endif

constexpr size_t kImageAlignment = 64;

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Texts that end with a zero byte each: the format of ELF's string tables.
struct StringTable {
  std::string bytes = std::string(1, '\0');
  Elf64_Word add(const std::string& text) {
    const size_t at = bytes.size();
    bytes += text + '\0';
    return static_cast<Elf64_Word>(at);
  }
};

Elf64_Sym symbol(Elf64_Word name, size_t value, size_t size) {
  Elf64_Sym one{};
  one.st_name = name;
  one.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  one.st_shndx = 1;  // .rodata
  one.st_value = value;
  one.st_size = size;
  return one;
}

// Sections in file order. The first one is empty, as in every ELF file.
class Sections {
 public:
  void add(const std::string& name, Elf64_Word type, Elf64_Xword flags, size_t alignment,
           const std::string& content, Elf64_Word link = 0, Elf64_Word info = 0, size_t entry = 0) {
    body_.resize((body_.size() + alignment - 1) / alignment * alignment, '\0');
    Elf64_Shdr header{};
    header.sh_name = names_.add(name);
    header.sh_type = type;
    header.sh_flags = flags;
    header.sh_offset = body_.size();
    header.sh_size = content.size();
    header.sh_link = link;
    header.sh_info = info;
    header.sh_addralign = alignment;
    header.sh_entsize = entry;
    headers_ += bytes_of(header);
    body_ += content;
    ++count_;
  }
  std::string file() {
    Elf64_Shdr last{};
    last.sh_name = names_.add(".shstrtab");
    last.sh_type = SHT_STRTAB;
    last.sh_offset = body_.size();
    last.sh_size = names_.bytes.size();
    last.sh_addralign = 1;
    headers_ += bytes_of(last);
    body_ += names_.bytes;
    body_.resize((body_.size() + 7) / 8 * 8, '\0');
    Elf64_Ehdr head{};
    std::memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_ident[EI_VERSION] = EV_CURRENT;
    head.e_type = ET_REL;
    head.e_machine = kMachine;
    head.e_version = EV_CURRENT;
    head.e_shoff = body_.size();
    head.e_ehsize = sizeof head;
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = static_cast<Elf64_Half>(count_ + 1);
    head.e_shstrndx = static_cast<Elf64_Half>(count_);
    return bytes_of(head) + body_.substr(sizeof head) + headers_;
  }

 private:
  std::string body_ = std::string(sizeof(Elf64_Ehdr), '\0');
  std::string headers_ = bytes_of(Elf64_Shdr{});
  StringTable names_;
  size_t count_ = 1;
};

// True if C or C++ reserves the name, so that no variable can have it.
bool is_taken_in_c(std::string_view name) {
  constexpr std::string_view kWords =
      " alignas alignof and asm auto bool break case catch char class const constexpr continue "
      "default delete do double else enum explicit export extern false float for friend goto if "
      "inline int long main mutable namespace new noexcept not nullptr operator or private "
      "protected public register restrict return short signed sizeof static struct switch "
      "template this thread_local throw true try typedef typeid typename typeof union unsigned "
      "using virtual void volatile while xor ";
  return kWords.find(fmt::format(" {} ", name)) != std::string_view::npos;
}

}  // namespace

std::string symbol_name(const std::string& file) {
  std::string name = std::filesystem::path(file).stem().string();
  const bool is_c_name = !name.empty() && !std::isdigit(static_cast<unsigned char>(name.front())) &&
                         std::all_of(name.begin(), name.end(), [](unsigned char c) {
                           return (std::isalnum(c) && c < 128) || c == '_';
                         });
  if (!is_c_name || is_taken_in_c(name))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the object is named \"{}\"; must be a C identifier and not a keyword, "
                            "such as my_kernels.o, because its symbols get that name",
                            file));
  return name;
}

std::string object_of(std::string_view bytes, const std::string& name) {
  std::string content(bytes);
  content.resize((content.size() + 7) / 8 * 8, '\0');
  const size_t count_at = content.size();
  content += bytes_of(static_cast<uint64_t>(bytes.size()));
  StringTable strings;
  std::string symbols = bytes_of(Elf64_Sym{});
  symbols += bytes_of(symbol(strings.add(name), 0, bytes.size()));
  symbols += bytes_of(symbol(strings.add(name + "_bytes"), count_at, 8));
  Sections sections;
  sections.add(".rodata", SHT_PROGBITS, SHF_ALLOC, kImageAlignment, content);
  sections.add(".symtab", SHT_SYMTAB, 0, 8, symbols, 3, 1, sizeof(Elf64_Sym));
  sections.add(".strtab", SHT_STRTAB, 0, 1, strings.bytes);
  sections.add(".note.GNU-stack", SHT_PROGBITS, 0, 1, "");  // the stack need not be executable
  return sections.file();
}

std::string header_of(const std::string& name, const std::string& kernels) {
  std::string guard = "ATTUNE_LINKED_" + name;
  std::transform(guard.begin(), guard.end(), guard.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(
      "/* Made by `attune`: the kernels that {0}.o holds. Link it in, and give them to a context:\n"
      " *\n"
      " *   attune_memory_bundle bundle = {0}_bundle();\n"
      " *   options.memory_bundles = &bundle;\n"
      " *   options.num_memory_bundles = 1;\n"
      " *\n{2} */\n"
      "#ifndef {1}_H_\n#define {1}_H_\n\n#include <attune/attune.h>\n#include <stdint.h>\n\n"
      "#ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n"
      "extern const unsigned char {0}[];\nextern const uint64_t {0}_bytes;\n\n"
      "static inline attune_memory_bundle {0}_bundle(void) {{\n"
      "  attune_memory_bundle bundle;\n  bundle.data = {0};\n  bundle.bytes = {0}_bytes;\n"
      "  return bundle;\n}}\n\n#ifdef __cplusplus\n}}\n#endif\n\n#endif\n",
      name, guard, kernels);
}

}  // namespace attune::cli
