// SPDX-License-Identifier: Apache-2.0
// XLA's handlers for JAX on CPUs and GPUs. jax_attention.py says how to build and register them.
#include <attune/attune.hpp>
#include <map>
#include <mutex>
#include <vector>

#include <xla/ffi/api/ffi.h>

namespace ffi = xla::ffi;
using Text = std::string_view;
using In = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

namespace {

// Returns the device's context, which is never freed. The first plan of a problem may compile.
const attune::Context& context_of(const std::string& target) {
  static std::mutex mutex;
  static std::map<std::string, attune::Context> contexts;
  const std::lock_guard<std::mutex> lock(mutex);
  attune::ContextOptions options;
  options.target = target.c_str();
  return contexts.try_emplace(target, options).first->second;
}

// Checks a buffer against the problem: kernels read as far as the problem says.
void check(const char* name, const In& buffer, int dtype, const std::vector<int64_t>& wanted) {
  static const std::map<int, ffi::DataType> types{
      {ATTUNE_FP32, ffi::F32}, {ATTUNE_BF16, ffi::BF16}, {ATTUNE_FP16, ffi::F16}};
  const auto extents = buffer.dimensions();
  const std::vector<int64_t> found(extents.begin(), extents.end());
  if (types.count(dtype) && buffer.element_type() == types.at(dtype) && found == wanted) return;
  auto text = name + (" is of type " + std::to_string(static_cast<int>(buffer.element_type())));
  for (const int64_t extent : extents) text += " x " + std::to_string(extent);
  throw std::invalid_argument(text + ", not as the problem says");
}

ffi::Error attend(const std::string& target, void* stream, Text problem, const In& q, const In& k,
                  const In& v, Out& o, Out& workspace) try {
  const attune::Problem p{std::string(problem)};
  if (p.op != ATTUNE_PREFILL) throw std::invalid_argument("op must be prefill");
  check("q", q, p.dtype, {p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk});
  check("k", k, p.dtype_kv, {p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk});
  check("v", v, p.dtype_kv, {p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v});
  check("o", *o, p.dtype_o, {p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v});
  const attune::Plan plan = context_of(target).plan(p);
  const std::size_t bytes = plan.workspace_bytes();
  if (workspace->size_bytes() < bytes + 255)  // XLA aligns to less than 256 bytes
    return ffi::Error::InvalidArgument("the workspace is too small");
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace->untyped_data());
  void* const memory = reinterpret_cast<void*>((begin + 255) / 256 * 256);
  plan.init_workspace(memory, bytes, stream);  // zeroes counters; on a GPU one small memset
  plan.run(p.contiguous(q.untyped_data(), k.untyped_data(), v.untyped_data(), o->untyped_data()),
           memory, bytes, stream);
  return ffi::Error::Success();
} catch (const std::exception& error) {  // XLA must not see exceptions
  return ffi::Error::InvalidArgument(error.what() + ("; problem: " + std::string(problem)));
}

ffi::Error on_cpu(Text problem, In q, In k, In v, Out o, Out room) {
  return attend("cpu", nullptr, problem, q, k, v, o, room);
}

ffi::Error on_cuda(Text problem, In q, In k, In v, Out o, Out room, void* stream, int32_t device) {
  return attend("cuda:" + std::to_string(device), stream, problem, q, k, v, o, room);
}

auto operands() {
  return ffi::Ffi::Bind().Attr<Text>("problem").Arg<In>().Arg<In>().Arg<In>().Ret<In>().Ret<In>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_cpu, on_cpu, operands());
// Only enqueues, so XLA may capture it in a CUDA graph.
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    attune_jax_cuda, on_cuda,
    operands().Ctx<ffi::PlatformStream<void*>>().Ctx<ffi::DeviceOrdinal>(),
    {ffi::Traits::kCmdBufferCompatible});
