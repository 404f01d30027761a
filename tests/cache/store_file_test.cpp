// SPDX-License-Identifier: Apache-2.0
// Setting a damaged file aside: with its journal, once, never over another, and only what was a
// store.
#include "cache/store_file.hpp"

#include <gmock/gmock.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "cache/schema.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

class StoreFileTest : public StoreTest {
 protected:
  fs::path journal() const { return file().string() + "-journal"; }
};

TEST_F(StoreFileTest, JournalGoesWithItsFile) {
  write_bytes(file(), "damaged");
  write_bytes(journal(), "half a transaction");
  const fs::path aside = set_aside(file(), file_id(file()));
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_FALSE(fs::exists(journal())) << "it would be played back into the next store";
  EXPECT_EQ(read_bytes(aside), "damaged");
  EXPECT_EQ(read_bytes(aside.string() + "-journal"), "half a transaction");
  EXPECT_EQ(aside.filename().string().rfind("store.db.corrupt-2", 0), 0U);
}

TEST_F(StoreFileTest, FileOfAnotherProcessStays) {
  write_bytes(file("damaged"), "damaged");
  const FileId damaged = file_id(file("damaged"));
  write_bytes(file(), "fresh");
  write_bytes(journal(), "of the fresh one");
  EXPECT_TRUE(set_aside(file(), damaged).empty());
  EXPECT_EQ(read_bytes(file()), "fresh");
  EXPECT_TRUE(fs::exists(journal()));
}

TEST_F(StoreFileTest, EachGetsItsOwnName) {
  for (const char* content : {"first", "second", "third"}) {
    write_bytes(file(), content);
    set_aside(file(), file_id(file()));
  }
  std::vector<std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder_))
    contents.push_back(read_bytes(entry.path()));
  EXPECT_THAT(contents, testing::UnorderedElementsAre("first", "second", "third"));
}

TEST_F(StoreFileTest, OnlyStoresCanBeDamagedStores) {
  const auto looks = [&](const std::string& bytes) {
    write_bytes(file(), bytes);
    return looks_like_damaged_store(file());
  };
  const std::string magic("SQLite format 3\0", 16), ours("attu"), other("\x0f\x05\x51\x12");
  const auto header = [](const std::string& head, const std::string& id) {
    return head + std::string(68 - head.size(), 'x') + id + std::string(100, 'y');
  };
  EXPECT_TRUE(looks(header(magic, ours)));
  EXPECT_TRUE(looks(header("overwritten", ours))) << "the mark is enough";
  EXPECT_FALSE(looks(header(magic, std::string(4, '\0')))) << "what most programs write";
  EXPECT_TRUE(looks(header(magic, std::string(4, '\0')) + std::string(first_table_sql())))
      << "the mark is lost, the first table tells";
  EXPECT_TRUE(looks(std::string(4096, '\0'))) << "a page that never reached the disk";
  EXPECT_TRUE(looks(magic)) << "cut off before the mark";
  EXPECT_FALSE(looks(header(magic, other))) << "another program's database";
  EXPECT_FALSE(looks(header("version https://git-lfs", other)));
  EXPECT_FALSE(looks("some text"));
}

// Closing any descriptor of a file releases all locks that the process has on it, also those of
// SQLite's connections.
TEST_F(StoreFileTest, AFreshFileIsOpenedOnlyBySqlite) {
  const int watch = inotify_init1(IN_NONBLOCK);
  ASSERT_GE(inotify_add_watch(watch, folder_.c_str(), IN_CREATE | IN_OPEN | IN_CLOSE), 0);
  create_store_file(file());
  create_store_file(file());
  alignas(inotify_event) char events[4096];
  const ssize_t got = read(watch, events, sizeof events);
  close(watch);
  std::vector<uint32_t> masks;
  for (ssize_t at = 0; at < got;) {
    const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
    if (event->len > 0) masks.push_back(event->mask);  // else of the folder itself
    at += static_cast<ssize_t>(sizeof *event + event->len);
  }
  EXPECT_THAT(masks, testing::ElementsAre(IN_CREATE));
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms(0600));
}

TEST_F(StoreFileTest, RelativePathWithoutFolderIsTheCurrentOne) {
  const fs::path former = fs::current_path();
  fs::current_path(folder_);
  Store::open("plain.db", StoreMode::kReadWrite).put_trial(sample_key(), sample_trial());
  EXPECT_EQ(Store::open("plain.db", StoreMode::kReadOnly).stats().trials, 1);
  fs::current_path(former);
}

}  // namespace
}  // namespace attune
