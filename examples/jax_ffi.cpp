// SPDX-License-Identifier: Apache-2.0
// attune in JAX: the handlers that XLA calls, of CPUs and GPUs. jax_attention.py registers them and says how this file is built.
#include <attune/attune.hpp>
#include <cstdint>

#include <xla/ffi/api/ffi.h>

namespace ffi = xla::ffi;

namespace {

// One a target, for the life of the process. Plans are looked up there; the first of a problem may compile.
const attune::Context& context_of(const char* target) {
  static const auto open = [](const char* name) {
    attune::ContextOptions options;
    options.target = name;
    return attune::Context(options);
  };
  static const attune::Context cpu = open("cpu");
  if (std::string(target) == "cpu") return cpu;
  static const attune::Context cuda = open("cuda");
  return cuda;
}

// XLA aligns to less than the 256 bytes that attune wants, so the buffer has that many more.
void* aligned(void* memory) {
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory) + 255) / 256 * 256);
}

ffi::Error attend(const char* target, void* stream, std::string_view problem_text,
                  const ffi::AnyBuffer& q, const ffi::AnyBuffer& k, const ffi::AnyBuffer& v,
                  ffi::Result<ffi::AnyBuffer>& o, ffi::Result<ffi::AnyBuffer>& workspace) try {
  const attune::Problem problem{std::string(problem_text)};
  const attune::Plan plan = context_of(target).plan(problem);
  const std::size_t bytes = plan.workspace_bytes();
  if (workspace->size_bytes() < bytes + 255)
    return ffi::Error::InvalidArgument("the workspace is too small");
  void* const memory = aligned(workspace->untyped_data());
  plan.init_workspace(memory, bytes, stream);  // its counters; on a GPU one small memset
  plan.run(
      problem.contiguous(q.untyped_data(), k.untyped_data(), v.untyped_data(), o->untyped_data()),
      memory, bytes, stream);
  return ffi::Error::Success();
} catch (const std::exception& error) {  // nothing may be thrown into XLA
  return ffi::Error::InvalidArgument(error.what());
}

ffi::Error on_cpu(std::string_view problem, ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                  ffi::Result<ffi::AnyBuffer> o, ffi::Result<ffi::AnyBuffer> workspace) {
  return attend("cpu", nullptr, problem, q, k, v, o, workspace);
}

ffi::Error on_cuda(void* stream, std::string_view problem, ffi::AnyBuffer q, ffi::AnyBuffer k,
                   ffi::AnyBuffer v, ffi::Result<ffi::AnyBuffer> o,
                   ffi::Result<ffi::AnyBuffer> workspace) {
  return attend("cuda", stream, problem, q, k, v, o, workspace);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_cpu, on_cpu,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("problem")
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());
// Only enqueues, so XLA may capture it in a CUDA graph.
XLA_FFI_DEFINE_HANDLER_SYMBOL(attune_jax_cuda, on_cuda,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .Attr<std::string_view>("problem")
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>(),
                              {ffi::Traits::kCmdBufferCompatible});
