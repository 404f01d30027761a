// SPDX-License-Identifier: Apache-2.0
// Finds models by file, folder, folder of the Hugging Face cache, and name in that cache.
#include "tuner/models/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "generator/core/system/error.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ModelPath : public ::testing::Test {
 protected:
  fs::path write(const fs::path& path, const std::string& text = "{}") const {
    fs::create_directories((folder_ / path.string()).parent_path());
    std::ofstream(folder_ / path.string()) << text;
    return folder_ / path.string();
  }
  std::string refusal(const std::string& text) const {
    return testing::error_text([&] { find_model(text, folder_ / "hub"); }, ErrorCode::kIo);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(ModelPath, FilesAndFolders) {
  const fs::path config = write("Llama/config.json");
  for (const fs::path& path : {config, config.parent_path()}) {
    const ModelFile found = find_model(path.string(), "");
    EXPECT_EQ(found.config, config);
    EXPECT_EQ(found.name, "Llama");
  }
  EXPECT_EQ(find_model(write("other.json").string(), "").name, "other");
  // A diffusers pipeline has its denoising network in a separate folder.
  write("sd/model_index.json");
  const fs::path unet = write("sd/unet/config.json");
  EXPECT_EQ(find_model((folder_ / "sd").string(), "").config, unet);
  fs::create_directory(folder_ / "empty");
  EXPECT_THAT(refusal((folder_ / "empty").string()), HasSubstr("a folder without config.json"));
  EXPECT_THAT(refusal("/nonexistent/config.json"), HasSubstr("no such file or folder"));
  EXPECT_THAT(refusal("/" + std::string(300, 'x') + "/config.json"),
              HasSubstr("cannot be read: File name too long"));
}

TEST_F(ModelPath, NamesInTheCache) {
  const fs::path model = "hub/models--meta-llama--Llama-3.2-1B";
  const fs::path old_config = write(model / "snapshots/aaa/config.json");
  const fs::path config = write(model / "snapshots/bbb/config.json");
  const std::string folder = (folder_ / model.string()).string();
  EXPECT_THAT(refusal("meta-llama/Llama-3.2-1B"),
              HasSubstr("2 snapshots, and refs/main names none"));
  write(model / "refs/main", "bbb");
  for (const std::string& text : {std::string("meta-llama/Llama-3.2-1B"), folder}) {
    const ModelFile found = find_model(text, folder_ / "hub");
    EXPECT_EQ(found.config, config);
    EXPECT_EQ(found.name, "Llama-3.2-1B");
  }
  EXPECT_EQ(find_model((folder_ / model.string() / "snapshots" / "aaa").string(), "").config,
            old_config);
  fs::remove(folder_ / model.string() / "refs" / "main");
  fs::remove_all(folder_ / model.string() / "snapshots" / "aaa");
  EXPECT_EQ(find_model("meta-llama/Llama-3.2-1B", folder_ / "hub").config, config);
  EXPECT_EQ(find_model("gpt2", write("hub/models--gpt2/snapshots/c/config.json")
                                   .parent_path()
                                   .parent_path()
                                   .parent_path()
                                   .parent_path())
                .name,
            "gpt2");
}

TEST_F(ModelPath, MissingModelsAreNotDownloaded) {
  const std::string what = refusal("meta-llama/Llama-3.2-3B");
  EXPECT_THAT(what, HasSubstr("models--meta-llama--Llama-3.2-3B is not in the Hugging Face cache"));
  EXPECT_THAT(what, HasSubstr("hf download meta-llama/Llama-3.2-3B config.json"));
  EXPECT_THAT(refusal("../escape/me"), HasSubstr("no such file or folder"));
}

TEST_F(ModelPath, TheCacheIsWhereItsVariablesSay) {
  const char* const names[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
                               "HOME"};
  const char* const places[] = {"/a", "/b", "/c/hub", "/d/huggingface/hub",
                                "/e/.cache/huggingface/hub"};
  for (size_t i = 0; i < std::size(names); ++i)
    ::setenv(names[i], (std::string("/") + static_cast<char>('a' + i)).c_str(), 1);
  for (size_t i = 0; i < std::size(names); ++i) {
    EXPECT_EQ(hugging_face_cache(), places[i]);
    ::unsetenv(names[i]);
  }
}

}  // namespace
}  // namespace attune
