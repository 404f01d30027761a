// SPDX-License-Identifier: Apache-2.0
// Damaged files and rows: truncated, empty, bit-flipped, foreign, altered.
// Never a crash, never a wrong image; a reader gets an error or a miss, a writer sets the file
// aside and goes on.
#include <gmock/gmock.h>

#include <random>

#include "cache/schema.hpp"
#include "cache/sqlite.hpp"
#include "cache/store_stack.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class StoreDamageTest : public StoreTest {
 protected:
  void fill() {
    Store store = writer();
    for (int64_t block_m = 16; block_m <= 256; block_m += 16)
      store.put_trial(sample_key(), sample_trial(block_m));
    store.put_winner(sample_key(), sample_winner(sample_key()));
    store.put_image(sample_image_key(), sample_image(std::string(20'000, 'k')));
  }
  std::vector<fs::path> set_aside() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().filename().string().find(".corrupt-") != std::string::npos)
        found.push_back(entry.path());
    return found;
  }
  // Changes one row behind the store's back.
  void alter(const std::string& sql) {
    Database database = Database::open(file(), Database::Mode::kReadWrite);
    database.execute("PRAGMA foreign_keys = OFF");
    database.execute(sql);
    if (sql.rfind("UPDATE", 0) == 0) {
      ASSERT_EQ(database.integer("SELECT changes()"), 1) << sql;
    }
  }
  // Checks that a writer can work, whatever the file held before.
  void expect_usable() {
    Store store = writer();
    store.put_trial(sample_key(), sample_trial());
    EXPECT_GE(store.trials(sample_key()).size(), 1U);
    EXPECT_TRUE(store.verify().empty());
  }
};

TEST_F(StoreDamageTest, TruncatedFile) {
  fill();
  const std::string whole = read_bytes(file());
  for (const size_t size : {size_t{50}, size_t{100}, size_t{512}, size_t{4096}, whole.size() / 2,
                            whole.size() - 5000}) {
    SCOPED_TRACE(size);
    const size_t before = set_aside().size();
    write_bytes(file(), whole.substr(0, size));
    EXPECT_TRUE(StoreStack({file()}).load_winners(sample_key().device).empty());
    EXPECT_THAT(logged(), HasSubstr("passed over"));
    expect_usable();
    EXPECT_EQ(set_aside().size(), before + 1);
  }
}

TEST_F(StoreDamageTest, ZeroLengthFileIsAMissAndThenAStore) {
  write_bytes(file(), "");
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("is empty"));
  EXPECT_FALSE(StoreStack({file()}).image(sample_image_key()).has_value());
  EXPECT_THAT(logged(), Not(HasSubstr("passed over"))) << "another process has just begun it";
  expect_usable();
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreDamageTest, AWriterContinuesInTheFileAtItsPath) {
  Store store = Store::open(file(), StoreMode::kReadWrite);
  store.put_trial(sample_key(), sample_trial(64));
  fs::rename(file(), file("aside"));
  store.put_trial(sample_key(), sample_trial(128));
  EXPECT_EQ(reader().trials(sample_key()).size(), 1U);
  fs::remove(file());
  Store::open(file(), StoreMode::kReadWrite).put_trial(sample_key(), sample_trial(64));
  store.put_trial(sample_key(), sample_trial(256));
  EXPECT_EQ(reader().trials(sample_key()).size(), 2U);
}

TEST_F(StoreDamageTest, BlankedFirstPageIsSetAside) {
  fill();
  std::string bytes = read_bytes(file());
  std::fill(bytes.begin(), bytes.begin() + 4096, '\0');
  write_bytes(file(), bytes);
  error_of(ErrorCode::kStore, [&] { reader(); });
  expect_usable();
  ASSERT_EQ(set_aside().size(), 1U);
  EXPECT_EQ(read_bytes(set_aside()[0]), bytes) << "nothing is thrown away";
  EXPECT_THAT(logged(), HasSubstr("is damaged; it was renamed to"));
}

// With one flipped bit anywhere, every call answers or throws kStore. The image is the stored one
// or a miss.
TEST_F(StoreDamageTest, OneFlippedBitAnywhere) {
  fill();
  const std::string whole = read_bytes(file());
  std::mt19937 random(20260501);
  std::vector<size_t> places;
  for (size_t byte = 0; byte < 100; ++byte)
    places.push_back(byte);  // the file header, byte by byte
  for (int i = 0; i < 300; ++i) places.push_back(random() % whole.size());
  int missed = 0;
  for (const size_t place : places) {
    SCOPED_TRACE(place);
    std::string bytes = whole;
    bytes[place] = static_cast<char>(bytes[place] ^ (1 << (random() % 8)));
    write_bytes(file(), bytes);
    const StoreStack stack({file()});
    const auto image = stack.image(sample_image_key());
    EXPECT_EQ(image ? image->bytes : std::string(20'000, 'k'), std::string(20'000, 'k'));
    missed += !image;
    for (const WinnerRecord& winner : stack.load_winners(sample_key().device))
      EXPECT_EQ(winner.shape.batch, 2);
    try {
      Store store = writer();
      store.verify();
      store.put_trial(sample_key(), sample_trial());
      store.put_image(sample_image_key(), sample_image("rebuilt"));
      EXPECT_EQ(store.image(sample_image_key()).value().bytes, "rebuilt");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStore) << error.what();
    }
    for (const fs::path& aside : set_aside()) fs::remove(aside);
  }
  EXPECT_GT(missed, 50)
      << "the 20 000 bytes of the image are most of the file, so many flips must have been noticed";
}

TEST_F(StoreDamageTest, OverwrittenPagesAreFoundInLaterCalls) {
  fill();
  Store store = writer();
  std::string bytes = read_bytes(file());
  // Overwrites the roots of all tables and indexes. The schema's first page comes before them, its
  // other pages after them.
  const int64_t roots = Database::open(file(), Database::Mode::kReadOnly)
                            .integer("SELECT max(rootpage) FROM sqlite_schema");
  std::fill(bytes.begin() + 4096, bytes.begin() + 4096 * roots, '\xa5');
  std::fstream(file(), std::ios::binary | std::ios::in | std::ios::out) << bytes;
  Store second = writer();  // header and schema are sound: opening does not notice
  EXPECT_FALSE(second.verify().empty());
  EXPECT_TRUE(second.trials(sample_key()).empty());
  EXPECT_EQ(set_aside().size(), 1U);
  second.put_trial(sample_key(), sample_trial());
  EXPECT_EQ(second.trials(sample_key()).size(), 1U);
  EXPECT_EQ(reader().trials(sample_key()).size(), 1U);
}

TEST_F(StoreDamageTest, OneOfTwoProcessesReplacesADamagedFile) {
  fill();
  std::string bytes = read_bytes(file());
  Store first = writer(), second = writer();
  std::fill(bytes.begin() + 4096, bytes.end(), '\xa5');
  std::fstream(file(), std::ios::binary | std::ios::in | std::ios::out) << bytes;
  {  // another header change counter, so that both read the pages again
    std::fstream patch(file(), std::ios::binary | std::ios::in | std::ios::out);
    patch.seekp(24);
    patch << std::string("\x7f\x00\x00\x01", 4);
  }
  first.put_trial(sample_key(), sample_trial(16));
  second.put_trial(sample_key(), sample_trial(32));
  EXPECT_EQ(set_aside().size(), 1U);
  EXPECT_EQ(reader().trials(sample_key()).size(), 2U);
}

TEST_F(StoreDamageTest, ForeignFilesAreLeftAlone) {
  const std::string text =
      "version https://git-lfs.github.com/spec/v1\noid sha256:1234\nsize 12345\n" +
      std::string(200, '#');
  for (const std::string& content : {text, std::string("short"), std::string(5000, 'x')}) {
    write_bytes(file(), content);
    error_of(ErrorCode::kStore, [&] { reader(); });
    EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("not an attune store"));
    EXPECT_EQ(read_bytes(file()), content);
  }
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreDamageTest, DatabaseOfAnotherProgramIsLeftAlone) {
  write_bytes(file(), "");
  {
    Database other = Database::open(file(), Database::Mode::kReadWrite);
    other.execute("CREATE TABLE bookmark (url TEXT); INSERT INTO bookmark VALUES ('x')");
  }
  const std::string content = read_bytes(file());
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("another program"));
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { reader(); }), HasSubstr("another program"));
  EXPECT_EQ(read_bytes(file()), content);
}

// A flipped bit leaves a version that no attune writes, in an otherwise sound file.
TEST_F(StoreDamageTest, AnImpossibleVersionIsDamage) {
  for (const char* version : {"-5", "0", "-2147483648"}) {
    SCOPED_TRACE(version);
    fill();
    Database::open(file(), Database::Mode::kReadWrite)
        .execute(std::string("PRAGMA user_version = ") + version);
    error_of(ErrorCode::kStore, [&] { reader(); });
    EXPECT_TRUE(StoreStack({file()}).load_winners(sample_key().device).empty());
    expect_usable();
    ASSERT_EQ(set_aside().size(), 1U);
    fs::remove(set_aside()[0]);
  }
}

TEST_F(StoreDamageTest, DamagedDatabaseOfAnotherProgramIsLeftAlone) {
  write_bytes(file(), "");
  Database::open(file(), Database::Mode::kReadWrite)
      .execute("CREATE TABLE bookmark (url TEXT); INSERT INTO bookmark VALUES ('x')");
  std::string content = read_bytes(file());
  content[100] = content[101] = '\xff';  // the kind of the first page
  write_bytes(file(), content);
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { writer(); }), HasSubstr("left alone"));
  EXPECT_EQ(read_bytes(file()), content);
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreDamageTest, ViewsOfAFileDoNotRun) {
  fill();
  alter("ALTER TABLE winner RENAME TO former");
  alter(
      "CREATE VIEW winner AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) "
      "SELECT * FROM former, n");
  error_of(ErrorCode::kStore, [&] { reader().stats(); });
  EXPECT_TRUE(StoreStack({file()}).load_winners(sample_key().device).empty());
}

TEST_F(StoreDamageTest, TriggersOfAFileDoNotRun) {
  fill();
  const int64_t before = reader().stats().trials;
  alter("CREATE TRIGGER evil AFTER INSERT ON trial BEGIN DELETE FROM trial; END");
  writer().put_trial(sample_key(), sample_trial(17));
  EXPECT_EQ(reader().stats().trials, before + 1);
}

TEST_F(StoreDamageTest, AStatementWithoutEndIsGivenUp) {
  fill();
  Database database = Database::open(file(), Database::Mode::kReadOnly);
  const std::string endless =
      "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { database.integer(endless); }),
              HasSubstr("given up"));
  EXPECT_EQ(database.integer("SELECT count(*) FROM trial"), 16) << "the next one starts anew";
  error_of(ErrorCode::kStore, [&] { database.integer("SELECT length(zeroblob(300000000))"); });
}

TEST_F(StoreDamageTest, ADamagedNewestImageLeavesTheOlderOne) {
  fill();
  ImageKey key = sample_image_key();
  key.toolchain.compiler = "nvrtc 99.0";
  writer().put_image(key, sample_image("newer"));
  key.toolchain.compiler.clear();
  EXPECT_EQ(reader().image(key).value().bytes, "newer");
  alter("UPDATE image SET entry = 'other_kernel' WHERE id = (SELECT max(id) FROM image)");
  EXPECT_EQ(reader().image(key).value().bytes, std::string(20'000, 'k'));
}

TEST_F(StoreDamageTest, AlteredImageIsRefusedAndRebuilt) {
  fill();
  alter("UPDATE image SET bytes = CAST(replace(CAST(bytes AS TEXT), 'kkkk', 'kkkK') AS BLOB)");
  {
    Store store = writer();
    EXPECT_FALSE(store.image(sample_image_key()).has_value());
    EXPECT_THAT(logged(), HasSubstr("does not match its SHA-256"));
    EXPECT_EQ(store.verify().size(), 1U);
    store.put_image(sample_image_key(), sample_image("rebuilt"));
    EXPECT_EQ(store.image(sample_image_key()).value().bytes, "rebuilt");
    EXPECT_TRUE(store.verify().empty());
  }
  EXPECT_TRUE(set_aside().empty()) << "one bad row does not cost the file";
}

TEST_F(StoreDamageTest, ImageMovedToAnotherKeyIsRefused) {
  fill();
  alter("UPDATE image SET config = 'block_m=128,block_n=64,kv_slots=2'");
  EXPECT_FALSE(reader().image(sample_image_key(128)).has_value());
  alter("UPDATE image SET config = 'block_m=64,block_n=64,kv_slots=2', entry = 'other_kernel'");
  EXPECT_FALSE(reader().image(sample_image_key()).has_value());
  alter("UPDATE image SET entry = 'attune_kernel'");
  EXPECT_TRUE(reader().image(sample_image_key()).has_value());
}

TEST_F(StoreDamageTest, DamagedRowsAreLeftOutAndMendedByTheNextPut) {
  fill();
  const size_t all = reader().trials(sample_key()).size();
  alter("UPDATE trial SET config = 'block_m=' WHERE id = 1");
  alter("UPDATE trial SET status = 77 WHERE id = 2");
  alter("UPDATE trial SET info = '{' WHERE id = 3");
  EXPECT_EQ(reader().trials(sample_key()).size(), all - 3);
  EXPECT_THAT(logged(), HasSubstr("damaged row of trial"));
  alter("UPDATE problem SET text = replace(text, '128', '192')");
  EXPECT_TRUE(reader().trials(sample_key()).empty());
  EXPECT_TRUE(reader().load_winners(sample_key().device).empty());
  writer().put_trial(sample_key(), sample_trial());
  EXPECT_EQ(reader().trials(sample_key()).size(), all - 3)
      << "the put wrote the problem's text again";
}

}  // namespace
}  // namespace attune
