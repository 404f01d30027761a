// SPDX-License-Identifier: Apache-2.0
// Reading ATTUNE_TRUST: which lists are refused, and which paths lie in a folder.
#include "generator/core/system/private_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrustedFoldersTest : public ::testing::Test {
 protected:
  ~TrustedFoldersTest() override {
    unsetenv("ATTUNE_TRUST");
    setenv("HOME", home_.c_str(), 1);
  }
  static std::string refusal(const std::string& list) {
    setenv("ATTUNE_TRUST", list.c_str(), 1);
    return testing::error_text([&] { trusted_folders(); }, ErrorCode::kInvalidArgument);
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = fs::canonical(temporary_.path());
  const std::string home_ = environment_variable("HOME").value_or("");
};

TEST_F(TrustedFoldersTest, LinksInFoldersAreResolved) {
  unsetenv("ATTUNE_TRUST");
  EXPECT_THAT(trusted_folders(), IsEmpty());
  fs::create_directory(folder_ / "team");
  fs::create_directory_symlink("team", folder_ / "link");
  const std::string list =
      (folder_ / "link").string() + "/::" + (folder_ / "none" / ".." / "later").string();
  EXPECT_EQ(refusal(list), "accepted");
  EXPECT_THAT(trusted_folders(), ElementsAre(folder_ / "team", folder_ / "later"));
}

TEST_F(TrustedFoldersTest, FoldersThatWouldTrustEveryUserAreRefused) {
  const fs::path home = folder_ / "users" / "me";
  fs::create_directories(home / "stores");
  setenv("HOME", home.c_str(), 1);
  EXPECT_THAT(refusal("relative"), AllOf(HasSubstr("ATTUNE_TRUST has \"relative\""),
                                         HasSubstr("must be the absolute path")));
  for (const char* root : {"/", "//", "/tmp/.."})
    EXPECT_THAT(refusal(root), HasSubstr("which is the whole machine")) << root;
  for (const fs::path& wide : {home, home.parent_path(), folder_})
    EXPECT_THAT(refusal("/nowhere:" + wide.string()),
                HasSubstr("the home folder " + home.string()));
  fs::create_directory_symlink(home, folder_ / "link");
  EXPECT_THAT(refusal(folder_ / "link"), HasSubstr("the home folder")) << "by another name";
  EXPECT_EQ(refusal(home / "stores"), "accepted");
}

TEST_F(TrustedFoldersTest, FoldersThatAllUsersMayWriteAreRefused) {
  const fs::path open = folder_ / "open";
  fs::create_directory(open);
  EXPECT_EQ(refusal(open), "accepted");
  ASSERT_EQ(chmod(open.c_str(), 01777), 0);
  EXPECT_THAT(refusal(open), HasSubstr("in which all users may write"));
  EXPECT_THAT(refusal("/home"), HasSubstr("the home folder"));
}

TEST_F(TrustedFoldersTest, TheHomeOfAnotherUserIsRefused) {
  const struct passwd* user = getpwnam("mail");
  struct stat status {};
  if (!user || user->pw_uid == geteuid() || stat(user->pw_dir, &status) != 0 ||
      status.st_uid != user->pw_uid) {
    if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: no home of another user is known here";
    user = getpwuid(0);  // its own, whatever HOME says
  }
  const std::string home = user->pw_dir;
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_THAT(refusal(home), HasSubstr("the home folder " + home));
}

TEST(TrustedFolders, AFolderHoldsThePathsBelowIt) {
  EXPECT_TRUE(is_in_one_of({"/a/b"}, "/a/b"));
  EXPECT_TRUE(is_in_one_of({"/x", "/a/b"}, "/a/b/c"));
  EXPECT_FALSE(is_in_one_of({"/a/b"}, "/a/bc"));
  EXPECT_FALSE(is_in_one_of({"/a/b"}, "/a"));
  EXPECT_FALSE(is_in_one_of({}, "/a"));
}

}  // namespace
}  // namespace attune
