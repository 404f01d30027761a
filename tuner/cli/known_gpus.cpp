// SPDX-License-Identifier: Apache-2.0
// The GPUs, from NVIDIA's data sheets; see kernel_choice.hpp.
#include "tuner/cli/kernel_choice.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace attune::cli {
namespace {

constexpr int64_t kMb = 1 << 20;

// clang-format off
constexpr KnownGpu kGpus[] = {
    {"t4",         "sm_75",  {"NVIDIA T4",                {40,  4 * kMb,   0.320e12}}},
    {"rtx2080ti",  "sm_75",  {"NVIDIA GeForce RTX 2080 Ti", {68, 5 * kMb,  0.616e12}}},
    {"a100",       "sm_80",  {"NVIDIA A100",              {108, 40 * kMb,  1.555e12}}},
    {"a100-80gb",  "sm_80",  {"NVIDIA A100 80GB",         {108, 40 * kMb,  2.039e12}}},
    {"a800",       "sm_80",  {"NVIDIA A800",              {108, 40 * kMb,  2.039e12}}},
    {"a30",        "sm_80",  {"NVIDIA A30",               {56,  24 * kMb,  0.933e12}}},
    {"a10",        "sm_86",  {"NVIDIA A10",               {72,  6 * kMb,   0.600e12}}},
    {"a10g",       "sm_86",  {"NVIDIA A10G",              {80,  6 * kMb,   0.600e12}}},
    {"a40",        "sm_86",  {"NVIDIA A40",               {84,  6 * kMb,   0.696e12}}},
    {"rtxa6000",   "sm_86",  {"NVIDIA RTX A6000",         {84,  6 * kMb,   0.768e12}}},
    {"rtx3080",    "sm_86",  {"NVIDIA GeForce RTX 3080",  {68,  5 * kMb,   0.760e12}}},
    {"rtx3090",    "sm_86",  {"NVIDIA GeForce RTX 3090",  {82,  6 * kMb,   0.936e12}}},
    {"l4",         "sm_89",  {"NVIDIA L4",                {58,  48 * kMb,  0.300e12}}},
    {"l20",        "sm_89",  {"NVIDIA L20",               {92,  96 * kMb,  0.864e12}}},
    {"l40",        "sm_89",  {"NVIDIA L40",               {142, 96 * kMb,  0.864e12}}},
    {"l40s",       "sm_89",  {"NVIDIA L40S",              {142, 96 * kMb,  0.864e12}}},
    {"rtx6000ada", "sm_89",  {"NVIDIA RTX 6000 Ada",      {142, 96 * kMb,  0.960e12}}},
    {"rtx4080",    "sm_89",  {"NVIDIA GeForce RTX 4080",  {76,  64 * kMb,  0.717e12}}},
    {"rtx4090",    "sm_89",  {"NVIDIA GeForce RTX 4090",  {128, 72 * kMb,  1.008e12}}},
    {"h100",       "sm_90a", {"NVIDIA H100",              {132, 50 * kMb,  3.352e12}}},
    {"h100-pcie",  "sm_90a", {"NVIDIA H100 PCIe",         {114, 50 * kMb,  2.039e12}}},
    {"h200",       "sm_90a", {"NVIDIA H200",              {132, 50 * kMb,  4.917e12}}},
    {"h800",       "sm_90a", {"NVIDIA H800",              {132, 50 * kMb,  3.352e12}}},
    {"h20",        "sm_90a", {"NVIDIA H20",               {78,  60 * kMb,  4.000e12}}},
    {"gh200",      "sm_90a", {"NVIDIA GH200",             {132, 50 * kMb,  4.000e12}}},
    {"b200",       "sm_100", {"NVIDIA B200",              {148, 126 * kMb, 8.000e12}}},
    {"gb200",      "sm_100", {"NVIDIA GB200",             {148, 126 * kMb, 8.000e12}}},
    {"b300",       "sm_103", {"NVIDIA B300",              {148, 126 * kMb, 8.000e12}}},
    {"rtx5080",    "sm_120", {"NVIDIA GeForce RTX 5080",  {84,  64 * kMb,  0.960e12}}},
    {"rtx5090",    "sm_120", {"NVIDIA GeForce RTX 5090",  {170, 96 * kMb,  1.792e12}}},
    {"rtxpro6000", "sm_120", {"NVIDIA RTX PRO 6000",      {188, 128 * kMb, 1.792e12}}},
    {"gb10",       "sm_121", {"NVIDIA GB10",              {48,  24 * kMb,  0.273e12}}}};
// clang-format on

// Returns the name in small letters, without spaces, signs and names of makers.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view word : {"nvidia", "geforce", "tesla", "quadro"})
    if (plain.starts_with(word)) plain.erase(0, word.size());
  return plain;
}

}  // namespace

const KnownGpu* find_gpu(std::string_view name) {
  const std::string plain = plain_name(name);
  const auto* const found =
      std::find_if(std::begin(kGpus), std::end(kGpus), [&](const KnownGpu& gpu) {
        return plain == plain_name(gpu.name) || plain == plain_name(gpu.device.name);
      });
  return found == std::end(kGpus) ? nullptr : found;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const KnownGpu& gpu : kGpus) names.emplace_back(gpu.name);
  return names;
}

}  // namespace attune::cli
