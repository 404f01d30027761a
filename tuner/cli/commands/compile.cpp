// SPDX-License-Identifier: Apache-2.0
// `attune compile`: makes kernels ahead of time, also for archs that this machine lacks. They go
// into the store. With --out they go into a folder from which the runtime loads them without
// compiler or store (runtime/bundles/bundle.hpp).
#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "cache/store.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/threads.hpp"
#include "generator/families/served.hpp"
#include "generator/render/renderer.hpp"
#include "runtime/bundles/bundle.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/bundle_output.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/output/progress_line.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  WorkloadOptions workload;
  std::string archs = "auto";
  std::string template_name;
  std::string config;
  std::string store;
  std::string out;
  bool zstd = false;
  int jobs = 0;
};

struct Job {
  Problem problem;  // the first of the problems that share the kernel
  KernelChoice choice;
  ImageKey key;
  std::optional<KernelImage> image;
  std::string failure;
};

// Returns two forms of each problem: the form that a call with its own lengths uses, and the given
// form, for lengths at which its window or alignment matters. In the second form, a window wider
// than kWidestWindow counts as no window.
std::vector<Problem> forms_of(const std::vector<Problem>& problems) {
  std::vector<Problem> forms;
  for (const Problem& problem : problems) {
    forms.push_back(canonical(problem));
    Problem& given = forms.emplace_back(problem);
    if (given.window_left > kWidestWindow) given.window_left = -1;
    if (given.window_right > kWidestWindow) given.window_right = -1;
  }
  return forms;
}

// Returns one job for each distinct (spec, arch, config): shapes that share a kernel share a job.
std::vector<Job> jobs_for(const Options& options, Workload* workload) {
  std::vector<Job> jobs;
  std::map<std::string, size_t> seen;
  MachineOptions machine;
  machine.store = options.store;
  read_stored_programs(machine, options.workload.problems);
  const std::vector<NamedArch> archs = archs_by_name(options.archs);
  std::map<Target, Workload> of_target;  // a model's types and lengths differ on CPUs
  for (const NamedArch& named : archs) {
    const Arch& arch = named.arch;
    if (of_target.count(arch.target) == 0)
      of_target[arch.target] = workload_of(options.workload, arch.target);
    Workload& own = of_target[arch.target];
    require_programs(own.problems);
    note_slow_kernels(arch, &own);
    const FactsSource source = facts_for(named);
    if (!source.is_here) add_note("default configs are chosen for " + source.text, &own);
    const Compiler& compiler = compiler_for(arch);
    for (const Problem& problem : forms_of(own.problems)) {
      KernelChoice choice =
          choose_kernel(problem, arch, source.facts, options.template_name, options.config);
      const ToolchainIdentity toolchain{std::string(choice.kernel_template->name()),
                                        template_digest(*choice.kernel_template),
                                        compiler.version(), compiler.options(arch)};
      ImageKey key{choice.spec, arch.name(), toolchain, choice.config, {}};
      const std::string text = fmt::format("{} {} {} {}", to_text(key.spec), key.arch,
                                           toolchain.template_name, key.config.to_text());
      if (seen.emplace(text, jobs.size()).second)
        jobs.push_back({problem, std::move(choice), std::move(key), {}, {}});
    }
  }
  *workload = of_target[archs.front().arch.target];
  for (const auto& [target, other] : of_target)
    if (target != archs.front().arch.target)
      workload->notes.insert(workload->notes.end(), other.notes.begin(), other.notes.end());
  return jobs;
}

void compile_one(Job* job) {
  try {
    const KernelChoice& choice = job->choice;
    const Source source = render(*choice.kernel_template, choice.spec, choice.arch, choice.config);
    job->key.source_digest = source_digest(source);
    job->image = compiler_for(choice.arch).compile(source, choice.arch);
    if (const auto fault = image_fault(job->image->info)) job->failure = *fault;
  } catch (const std::exception& error) {  // uncaught in a thread, it would end the program
    job->failure = error.what();
  }
}

void compile_all(std::vector<Job>* jobs, int num_threads) {
  ProgressLine progress;
  std::mutex mutex;
  std::atomic<size_t> next{0};
  size_t done = 0;
  const auto work = [&] {
    for (size_t i = next++; i < jobs->size(); i = next++) {
      compile_one(&(*jobs)[i]);
      const std::lock_guard lock(mutex);
      ++done;
      progress.show(static_cast<double>(done) / static_cast<double>(jobs->size()),
                    {fmt::format("{} of {} kernels", done, jobs->size())});
    }
  };
  std::vector<std::thread> threads = start_threads(num_threads - 1, [&work](int) { work(); });
  work();
  for (std::thread& thread : threads) thread.join();
}

// Stores the kernels. Returns how an existing bundle changed; nullopt if the images went into the
// store.
std::optional<BundleChange> keep(const Options& options, const std::vector<Job>& jobs) {
  if (!options.out.empty()) {
    std::vector<BundledKernel> kernels;
    for (const Job& job : jobs)
      if (job.failure.empty()) kernels.push_back({job.key, *job.image, {}});
    return write_kernels(options.out, kernels, options.zstd ? Packing::kZstd : Packing::kNone);
  }
  Store store = Store::open(store_path_or_default(options.store), StoreMode::kReadWrite);
  for (const Job& job : jobs)
    if (job.failure.empty()) store.put_image(job.key, *job.image);
  return std::nullopt;
}

Json job_json(const Job& job) {
  Json body{{"arch", job.key.arch},
            {"template", job.key.toolchain.template_name},
            {"problem", to_text(job.problem)},
            {"config", job.key.config.to_text()},
            {"failure", job.failure.empty() ? Json(nullptr) : Json(job.failure)}};
  if (job.image) {
    body["compile_time_s"] = job.image->compile_ms * 1e-3;
    body["image_bytes"] = job.image->bytes.size();
    body["registers"] = job.image->info.registers;
  }
  return body;
}

void print_jobs(const std::vector<Job>& jobs) {
  Table table({"problem", "arch", "template", "compile", "bytes", "registers", "result"});
  for (const Job& job : jobs) {
    const bool has = job.image.has_value();
    table.add(
        {short_text(job.problem), job.key.arch, job.key.toolchain.template_name,
         has ? format_time(job.image->compile_ms * 1e3) : "-",
         has ? std::to_string(job.image->bytes.size()) : "-",
         has && job.image->info.registers >= 0 ? std::to_string(job.image->info.registers) : "-",
         job.failure.empty() ? "ok" : job.failure});
  }
  print(table.text());
}

int compile(const Options& options) {
  if (options.zstd && options.out.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "--zstd is given without --out; must be given with --out NAME.attune or NAME.o, "
                "because a store keeps images uncompressed");
  Workload workload;
  std::vector<Job> jobs = jobs_for(options, &workload);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  compile_all(&jobs, options.jobs == 0 ? cores : options.jobs);
  size_t failed = 0;
  for (const Job& job : jobs) failed += job.failure.empty() ? 0 : 1;
  std::optional<BundleChange> change;
  if (failed < jobs.size()) change = keep(options, jobs);
  if (options.json) {
    Json kernels = Json::array();
    for (const Job& job : jobs) kernels.push_back(job_json(job));
    Json body{{"kernels", kernels},
              {"failed", failed},
              {"kept", change ? Json(change->kept) : Json(nullptr)},
              {"unnamed_files", change ? Json(change->unnamed) : Json(nullptr)},
              {"out", options.out.empty() ? Json(nullptr) : Json(options.out)}};
    body.update(workload_json(workload));
    print_json("compile", body);
  } else {
    print_jobs(jobs);
    if (change) print(bundle_change_text(*change));
  }
  return failed == 0 ? kOk : kMissing;
}

}  // namespace

void add_compile(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "compile", "Compile kernels ahead of time, also for archs that this machine lacks",
      "attune compile examples/models/Llama-3.1-8B/config.json --arch sm_80,sm_90a --out kernels/",
      &options->json);
  add_workload_options(command, &options->workload);
  command
      .add_option("--arch", options->archs,
                  "all (every CUDA arch), or a list separated by commas: " + arch_help())
      .shows_default();
  command.add_option("--template", options->template_name,
                     "Kernel template (default: the best that serves the problem)");
  command.add_option("--config", options->config,
                     "Knobs that differ from the default, knob=value,...");
  command.add_option(
      "--store", options->store,
      "Store for the compiled kernels (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  command.add_option("--out", options->out,
                     std::string("Write to this output instead of the store. ") + kOutputHelp);
  command.add_flag("--zstd", options->zstd, kZstdHelp);
  add_jobs_option(command, &options->jobs);
  command.callback([options, exit_code] { *exit_code = compile(*options); });
}

}  // namespace attune::cli
