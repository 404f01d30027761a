// SPDX-License-Identifier: Apache-2.0
// Opening files that others prepared: anything but a regular file is refused by its kind, and
// nothing hangs. replace_file_test.cpp has files of another user.
#include "generator/core/system/files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "generator/core/system/error.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

class OpenFileTest : public ::testing::Test {
 protected:
  OpenFileTest() {
    alarm(60);
    std::ofstream(folder_ / "file") << "text";
  }
  ~OpenFileTest() override { alarm(0); }
  // Returns the reason why the file is not opened; "" if it is opened.
  std::string fault(const fs::path& name, int flags = O_RDONLY) const {
    std::string why = "something left over";
    const FileDescriptor file = open_regular(folder_ / name, flags, &why, 0600);
    EXPECT_EQ(static_cast<bool>(file), why.empty());
    return why;
  }
  std::string read(const fs::path& name, FileKinds kinds, size_t most = 100) const {
    try {
      return read_file("the thing", folder_ / name, most, kinds);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      return error.what();
    }
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(OpenFileTest, OnlyRegularFilesAreOpened) {
  EXPECT_EQ(fault("file"), "");
  EXPECT_EQ(fault("made", O_WRONLY | O_CREAT), "");
  EXPECT_EQ(fault("none"), "No such file or directory");
  fs::create_symlink("file", folder_ / "link");
  EXPECT_EQ(fault("link"), "");
  EXPECT_EQ(fault("link", O_RDONLY | O_NOFOLLOW), std::strerror(ELOOP));
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", folder_ / "to_fifo");
  for (const int flags : {O_RDONLY, O_WRONLY, O_WRONLY | O_APPEND | O_CREAT})
    for (const char* name : {"fifo", "to_fifo"})
      EXPECT_EQ(fault(name, flags), "it is a FIFO, not a regular file");
  EXPECT_EQ(fault("."), "it is a directory, not a regular file");
  EXPECT_EQ(fault("/dev/null", O_WRONLY), "it is a device, not a regular file");
  sockaddr_un address{AF_UNIX, {}};
  const std::string socket_name = folder_ / "socket";
  std::memcpy(address.sun_path, socket_name.c_str(), socket_name.size() + 1);
  const FileDescriptor listening(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(fault("socket"), "it is a socket, not a regular file");
}

TEST_F(OpenFileTest, ALibraryThatIsNotARegularFileIsNotLoaded) {
  ASSERT_EQ(mkfifo((folder_ / "fifo.so").c_str(), 0600), 0);
  EXPECT_THAT(library_fault(folder_ / "fifo.so"), ::testing::HasSubstr("fifo.so: it is a FIFO"));
  EXPECT_EQ(library_fault("libm.so.6"), "") << "the loader looks it up";
  EXPECT_EQ(library_fault(folder_ / "file"), "");
}

TEST_F(OpenFileTest, StreamsAreReadIfTheCallerAllowsThem) {
  EXPECT_EQ(read("file", FileKinds::kRegular), "text");
  EXPECT_EQ(read("file", FileKinds::kStreamsToo), "text");
  EXPECT_THAT(read("file", FileKinds::kRegular, 3), ::testing::HasSubstr("larger than 3 bytes"));
  EXPECT_EQ(read("/dev/null", FileKinds::kStreamsToo), "");
  EXPECT_THAT(read("/dev/zero", FileKinds::kStreamsToo), ::testing::HasSubstr("larger than 100"));
  EXPECT_THAT(read("/dev/null", FileKinds::kRegular),
              ::testing::HasSubstr("the thing /dev/null cannot be read: it is a device"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // as `<(command)` of a shell gives it
  ASSERT_EQ(write(ends[1], "piped", 5), 5);
  close(ends[1]);
  EXPECT_EQ(read("/dev/fd/" + std::to_string(ends[0]), FileKinds::kStreamsToo), "piped");
  close(ends[0]);
}

}  // namespace
}  // namespace attune
