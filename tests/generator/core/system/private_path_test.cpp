// SPDX-License-Identifier: Apache-2.0
// Which files with code are trusted: owners, modes, links and the directories above. Tests that
// need a second user run only as root, and skip aloud otherwise.
#include "generator/core/system/private_path.hpp"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/runtime/temporary_folder.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kNobody = 65534;
constexpr Guarded kThing{"thing", ErrorCode::kIo};

class PrivatePathTest : public ::testing::Test {
 protected:
  PrivatePathTest() {
    fs::create_directory(folder_ / "above");
    fs::create_directory(folder_ / "above" / "mine");
    make(file());
    alarm(60);  // no check may hang
  }
  ~PrivatePathTest() override { alarm(0); }
  fs::path file() const { return folder_ / "above" / "mine" / "file"; }
  static void make(const fs::path& path) {
    std::ofstream(path) << "x";
    chmod(path.c_str(), 0600);
  }
  // Returns the message of a refusal, or the resolved path.
  static std::string answer(const fs::path& path) {
    try {
      return private_file(path, kThing).string();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr("thing " + path.string() + ": "));
      return error.what();
    }
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = fs::canonical(temporary_.path());
};

TEST_F(PrivatePathTest, TheAnswerHasNoLinks) {
  EXPECT_EQ(answer(file()), file());
  EXPECT_EQ(answer(folder_ / "above" / ".." / "above" / "." / "mine" / "file"), file());
  fs::create_directory_symlink("above/mine", folder_ / "relative");
  fs::create_directory_symlink(folder_ / "relative", folder_ / "absolute");
  EXPECT_EQ(answer(folder_ / "absolute" / "file"), file());
  fs::create_symlink("absolute/../mine/file", folder_ / "link");
  EXPECT_EQ(answer(folder_ / "link"), file());
  const fs::path former = fs::current_path();
  fs::current_path(folder_ / "above");
  EXPECT_EQ(answer("mine/file"), file());
  fs::current_path(former);
}

TEST_F(PrivatePathTest, ADirectoryAboveThatOthersCanWriteIsRefused) {
  chmod((folder_ / "above").c_str(), 0777);
  EXPECT_THAT(answer(file()), AllOf(HasSubstr("directory " + (folder_ / "above").string()),
                                    HasSubstr("0777, so others can write it")));
  chmod((folder_ / "above").c_str(), 01777);
  EXPECT_EQ(answer(file()), file()) << "a sticky directory protects files of others";
  chmod((folder_ / "above" / "mine").c_str(), 01777);
  EXPECT_THAT(answer(file()), HasSubstr("1777")) << "another user could add a file";
}

TEST_F(PrivatePathTest, AFileThatOthersCanWriteIsRefused) {
  chmod(file().c_str(), 0602);
  EXPECT_THAT(answer(file()), HasSubstr("chmod go-w " + file().string()));
  chmod(file().c_str(), 0644);
  EXPECT_EQ(answer(file()), file());
}

TEST_F(PrivatePathTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: giving a file to another user needs root";
  for (const fs::path& theirs : {folder_ / "above", folder_ / "above" / "mine", file()}) {
    ASSERT_EQ(chown(theirs.c_str(), kNobody, 0), 0);
    EXPECT_THAT(answer(file()), HasSubstr(theirs.string() + " belongs to user 65534"));
    ASSERT_EQ(chown(theirs.c_str(), 0, 0), 0);
  }
  fs::create_symlink(file(), folder_ / "link");
  EXPECT_EQ(answer(folder_ / "link"), file());
  ASSERT_EQ(lchown((folder_ / "link").c_str(), kNobody, 0), 0);
  EXPECT_THAT(answer(folder_ / "link"), HasSubstr("link belongs to user 65534"));
}

// For example a team's folder, or a container that mounts its host's cache.
TEST_F(PrivatePathTest, ATrustedFolderMayBelongToOthers) {
  const fs::path shared = folder_ / "above";
  const bool is_root = geteuid() == 0;  // root's group does not count as private
  fs::create_symlink(file(), shared / "link");
  for (const fs::path& theirs : {shared, shared / "mine", file()}) {
    if (is_root) ASSERT_EQ(chown(theirs.c_str(), kNobody, kNobody), 0);
    chmod(theirs.c_str(), theirs == file() ? 0660 : 0770);
  }
  if (is_root) {
    ASSERT_EQ(lchown((shared / "link").c_str(), kNobody, 0), 0);
    EXPECT_THAT(answer(file()), HasSubstr("ATTUNE_TRUST=FOLDER"));
  }
  setenv("ATTUNE_TRUST", shared.c_str(), 1);
  EXPECT_EQ(answer(file()), file());
  EXPECT_EQ(answer(shared / "link"), file());
  chmod(file().c_str(), 0666);
  EXPECT_THAT(answer(file()), HasSubstr("0666, so others can write it")) << "any user could write";
  chmod(file().c_str(), 0660);
  if (is_root) {  // the path to the folder and targets of links in it are still checked
    ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
    EXPECT_THAT(answer(file()), HasSubstr(folder_.string() + " belongs to user 65534"));
    ASSERT_EQ(chown(folder_.c_str(), 0, 0), 0);
    make(folder_ / "outside");
    ASSERT_EQ(chown((folder_ / "outside").c_str(), kNobody, kNobody), 0);
    fs::create_symlink("../outside", shared / "out");
    EXPECT_THAT(answer(shared / "out"), HasSubstr("outside belongs to user 65534"));
  }
  unsetenv("ATTUNE_TRUST");
}

TEST_F(PrivatePathTest, OnlyRegularFilesServe) {
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(answer(folder_ / "fifo"), HasSubstr("fifo is a FIFO, not a regular file"));
  EXPECT_THAT(answer(folder_ / "above"), HasSubstr("above is a directory, not a regular file"));
  EXPECT_THAT(answer(folder_ / "above" / "mine" / "none"), HasSubstr("none: No such file"));
  EXPECT_THAT(answer(folder_ / "none" / "file"), HasSubstr("none: No such file"));
  EXPECT_THAT(answer(file() / "below"), HasSubstr("file is not a directory"));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_THAT(answer(folder_ / "loop"), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(PrivatePathTest, AdviceNeverChangesASystemFolder) {
  const auto advice = [](const fs::path& path) -> std::string {
    return testing::error_text([&] { private_place(path, kThing); });
  };
  EXPECT_THAT(advice("/tmp/attune-thing-that-is-not-there"),
              AllOf(HasSubstr("mkdir -m 700"), Not(HasSubstr("chmod"))));
  EXPECT_THAT(advice("/dev/null"), AllOf(HasSubstr("is a device"), Not(HasSubstr("chmod"))));
}

TEST_F(PrivatePathTest, MissingDirectoriesAreMade) {
  const mode_t former = umask(0);
  const Guarded open{"thing", ErrorCode::kIo, 0755};
  const fs::path place = folder_ / "a" / "b" / "file";
  EXPECT_EQ(private_place(place, open), place);
  umask(former);
  EXPECT_EQ(fs::status(folder_ / "a").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(folder_ / "a" / "b").permissions(), fs::perms(0755));
  EXPECT_FALSE(fs::exists(place));
  EXPECT_THROW(private_file(folder_ / "c" / "file", open), Error);
  EXPECT_FALSE(fs::exists(folder_ / "c")) << "reading creates no directory";
}

// Many systems give each user a private group, and a umask of 002.
TEST_F(PrivatePathTest, TheUsersPrivateGroupMayWrite) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: becoming a user with such a group needs root";
  const struct passwd* user = getpwnam("mail");
  if (!user || user->pw_uid == 0 || !getgrnam("mail") || getgrnam("mail")->gr_gid != user->pw_gid)
    GTEST_SKIP() << "SKIPPED: there is no user mail with a group of that name";
  const auto answers = [&](gid_t group) {
    for (const fs::path& path : {folder_, folder_ / "above", folder_ / "above" / "mine", file()}) {
      EXPECT_EQ(chown(path.c_str(), user->pw_uid, group), 0);
      chmod(path.c_str(), path == file() ? 0664 : 0775);
    }
    const pid_t child = fork();
    if (child == 0)
      _exit(setgid(user->pw_gid) == 0 && setuid(user->pw_uid) == 0 && answer(file()) == file());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(answers(user->pw_gid));
  EXPECT_FALSE(answers(user->pw_gid + 1)) << "a group with others in it";
  EXPECT_FALSE(answers(0));
}

}  // namespace
}  // namespace attune
