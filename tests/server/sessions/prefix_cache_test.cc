#include "server/sessions/prefix_cache.h"

#include <random>
#include <thread>

#include "gtest/gtest.h"

namespace flash {
namespace {

constexpr int kChunk = 4;
constexpr int64_t kStateBytes = 1000;
// What an entry counts for: a state, and what the cache knows of it.
constexpr int64_t kEntryBytes = kStateBytes + 512;

PrefixCache::Options WithRoomFor(int64_t states) {
  return {.max_bytes = states * kEntryBytes,
          .chunk_size = kChunk,
          .fingerprint = "a model"};
}

// One chunk for each letter.
std::vector<PrefixKey> KeysOf(const PrefixCache& cache,
                              std::string_view letters,
                              std::string_view owner = "") {
  std::vector<PrefixKey> keys;
  PrefixKey key = cache.KeyOfNothing(owner);
  for (const char letter : letters) {
    key = cache.KeyAfter(key, std::vector<int32_t>(kChunk, letter));
    keys.push_back(key);
  }
  return keys;
}

// A state that tells what it is of.
std::string StateAfter(std::string_view letters) {
  std::string state(letters);
  state.resize(kStateBytes);
  return state;
}

// What the scheduler does with a prompt: goes on from what is found, and puts
// what is wanted. Returns the boundaries that were put.
std::vector<size_t> Prompt(PrefixCache& cache, const std::string& letters,
                           std::string_view owner = "") {
  const auto keys = KeysOf(cache, letters, owner);
  const auto found = cache.Find(keys);
  std::vector<size_t> put;
  for (size_t n = found ? found->num_chunks + 1 : 1; n <= keys.size(); ++n) {
    if (!cache.Wants(keys, n)) continue;
    cache.Put(keys, n,
              std::make_shared<std::string>(StateAfter(letters.substr(0, n))));
    put.push_back(n);
  }
  return put;
}

// How many chunks of it are at hand; checks that they are this prompt's.
size_t Found(PrefixCache& cache, std::string_view letters,
             std::string_view owner = "") {
  const auto found = cache.Find(KeysOf(cache, letters, owner));
  if (!found) return 0;
  EXPECT_EQ(*found->state, StateAfter(letters.substr(0, found->num_chunks)));
  return found->num_chunks;
}

using Boundaries = std::vector<size_t>;

TEST(PrefixKeyTest, IsTheSameForTheSameTokensInEveryServer) {
  const PrefixCache one(WithRoomFor(1));
  const PrefixCache other(WithRoomFor(7));
  EXPECT_EQ(KeysOf(one, "abc", "me"), KeysOf(other, "abc", "me"));
}

TEST(PrefixKeyTest, DiffersWithTheTokensBefore) {
  const PrefixCache cache(WithRoomFor(1));
  const auto keys = KeysOf(cache, "abc");
  EXPECT_NE(keys[2], KeysOf(cache, "xbc")[2]);
  EXPECT_NE(keys[2], KeysOf(cache, "bac")[2]);
  EXPECT_NE(keys[1], KeysOf(cache, "aba")[2]);
}

TEST(PrefixKeyTest, DiffersWithOwnerModelAndChunks) {
  PrefixCache::Options options = WithRoomFor(1);
  const PrefixKey nothing = PrefixCache(options).KeyOfNothing("me");
  EXPECT_NE(PrefixCache(options).KeyOfNothing("you"), nothing);
  EXPECT_NE(PrefixCache(options).KeyOfNothing(""), nothing);
  options.chunk_size = 2 * kChunk;
  EXPECT_NE(PrefixCache(options).KeyOfNothing("me"), nothing);
  options = WithRoomFor(1);
  options.fingerprint = "another";
  EXPECT_NE(PrefixCache(options).KeyOfNothing("me"), nothing);
}

TEST(PrefixKeyTest, DiffersWhereTheSameTokensStandInOtherChunks) {
  PrefixCache::Options options = WithRoomFor(1);
  const PrefixCache narrow(options);
  options.chunk_size = 2 * kChunk;
  const PrefixCache wide(options);
  const std::vector<int32_t> ids(2 * kChunk, 'a');
  EXPECT_NE(wide.KeyAfter(wide.KeyOfNothing(""), ids),
            KeysOf(narrow, "aa").back());
}

TEST(PrefixCacheTest, KeepsTheEndOfAPromptAndGrowingDistances) {
  PrefixCache cache(WithRoomFor(100));
  EXPECT_EQ(Prompt(cache, "abcdefghijklm"), (Boundaries{1, 2, 4, 8, 13}));
  EXPECT_EQ(Found(cache, "abcdefghijklm"), 13);
  EXPECT_EQ(Found(cache, "abcdefghijklmnop"), 13);
  EXPECT_EQ(Found(cache, "abcdefghijkl"), 8);
  EXPECT_EQ(Found(cache, "abcx"), 2);
  EXPECT_EQ(Found(cache, "xbcd"), 0);
}

TEST(PrefixCacheTest, RunsNothingTwiceOfWhatIsThere) {
  PrefixCache cache(WithRoomFor(100));
  Prompt(cache, "abcde");
  EXPECT_EQ(Prompt(cache, "abcde"), Boundaries{});
  EXPECT_EQ(Prompt(cache, "abcdefg"), (Boundaries{7}));
}

TEST(PrefixCacheTest, KeepsWhatTwoPromptsShareForTheThird) {
  PrefixCache cache(WithRoomFor(100));
  Prompt(cache, "abcdefghijk first question");
  // Where they part is no power of two and no end, but it is shared.
  EXPECT_EQ(Prompt(cache, "abcdefghijk other question")[0], 12);
  EXPECT_EQ(Found(cache, "abcdefghijk third question"), 12);
}

TEST(PrefixCacheTest, KeepsTheSharedPartAlsoWhileTheFirstPromptStillRuns) {
  PrefixCache cache(WithRoomFor(100));
  const auto first = KeysOf(cache, "abcdefghijk one");
  const auto second = KeysOf(cache, "abcdefghijk two");
  cache.Find(first);
  EXPECT_FALSE(cache.Wants(first, 12));
  cache.Find(second);
  EXPECT_TRUE(cache.Wants(first, 12));  // whoever comes there first
  EXPECT_FALSE(cache.Wants(first, 11));
  EXPECT_FALSE(cache.Wants(second, 13));
}

TEST(PrefixCacheTest, DoesNotTakeTwoThatAreTheSameForTwoThatPart) {
  PrefixCache cache(WithRoomFor(100));
  const auto keys = KeysOf(cache, "abcdefg");
  cache.Find(keys);
  cache.Find(keys);
  EXPECT_FALSE(cache.Wants(keys, 6));
  EXPECT_TRUE(cache.Wants(keys, 7));
}

TEST(PrefixCacheTest, ShowsNoOwnerWhatAnotherLeft) {
  PrefixCache cache(WithRoomFor(100));
  Prompt(cache, "abcd", "me");
  EXPECT_EQ(Found(cache, "abcd", "you"), 0);
  EXPECT_EQ(Found(cache, "abcd", ""), 0);
  EXPECT_EQ(Found(cache, "abcd", "me"), 4);
  EXPECT_EQ(Prompt(cache, "abcdx", "it"), (Boundaries{1, 2, 4, 5}));
}

TEST(PrefixCacheTest, SharesAmongAllIfItIsTold) {
  PrefixCache::Options options = WithRoomFor(100);
  options.sharing = PrefixCache::Sharing::kAmongAll;
  PrefixCache cache(options);
  Prompt(cache, "abcd", "me");
  EXPECT_EQ(Found(cache, "abcd", "you"), 4);
}

TEST(PrefixCacheTest, GivesUpFirstWhatIsSoonestRunAgain) {
  PrefixCache cache(WithRoomFor(5));
  Prompt(cache, "abcdefghijklm");  // 1, 2, 4, 8 and 13
  Prompt(cache, "x");
  // 1 is one chunk from nothing, and so is x, which came later.
  EXPECT_EQ(Found(cache, "a"), 0);
  EXPECT_EQ(Found(cache, "x"), 1);
  EXPECT_EQ(Found(cache, "ab"), 2);
  EXPECT_EQ(Found(cache, "abcdefghijklm"), 13);
}

TEST(PrefixCacheTest, ThinsOutWhatLiesCloseTogether) {
  PrefixCache cache(WithRoomFor(2));
  Prompt(cache, "abcdefghijklmnopq");  // 1, 2, 4, 8, 16 and 17
  EXPECT_EQ(Found(cache, "abcdefghijklmno"), 8);
  EXPECT_EQ(Found(cache, "abcdefghijklmnop"), 16);
  // The last one is soon run again.
  EXPECT_EQ(Found(cache, "abcdefghijklmnopq"), 16);
  EXPECT_EQ(cache.stats().worthless, 1);
}

TEST(PrefixCacheTest, LongPromptsOutliveShortOnesButNotForEver) {
  PrefixCache cache(WithRoomFor(3));
  const std::string long_prompt(100, 'a');
  Prompt(cache, long_prompt);
  for (int i = 0; i < 5; ++i) Prompt(cache, "s" + std::to_string(i));
  EXPECT_EQ(Found(cache, long_prompt), 100);
  for (int i = 0; i < 1000; ++i) {
    Prompt(cache, "used" + std::to_string(i));
    ASSERT_EQ(Found(cache, long_prompt), 100);
  }
  for (int i = 0; i < 1000; ++i) Prompt(cache, "unused" + std::to_string(i));
  EXPECT_EQ(Found(cache, long_prompt), 0);
}

TEST(PrefixCacheTest, LeavesAStateToThoseWhoHoldIt) {
  PrefixCache cache(WithRoomFor(1));
  Prompt(cache, "a");
  const auto found = cache.Find(KeysOf(cache, "a"));
  Prompt(cache, "b");
  EXPECT_EQ(Found(cache, "a"), 0);
  EXPECT_EQ(*found->state, StateAfter("a"));
}

TEST(PrefixCacheTest, HoldsNoStateThatItGaveUp) {
  PrefixCache cache(WithRoomFor(1));
  const auto state = std::make_shared<const std::string>(StateAfter("a"));
  cache.Put(KeysOf(cache, "a"), 1, state);
  EXPECT_EQ(state.use_count(), 2);
  Prompt(cache, "b");
  EXPECT_EQ(state.use_count(), 1);
}

TEST(PrefixCacheTest, RefusesWhatIsLargerThanItself) {
  PrefixCache cache(WithRoomFor(1));
  Prompt(cache, "a");
  cache.Put(KeysOf(cache, "b"), 1,
            std::make_shared<std::string>(kStateBytes + 1, 'b'));
  EXPECT_EQ(cache.stats().too_large, 1);
  EXPECT_EQ(Found(cache, "b"), 0);
  EXPECT_EQ(Found(cache, "a"), 1);
}

TEST(PrefixCacheTest, WantsNothingWithoutRoom) {
  PrefixCache cache(WithRoomFor(0));
  EXPECT_EQ(Prompt(cache, "abcd"), Boundaries{});
  EXPECT_EQ(Found(cache, "abcd"), 0);
}

TEST(PrefixCacheTest, CountsWhatItDoes) {
  PrefixCache cache(WithRoomFor(2));
  cache.Find({});        // shorter than a chunk: nothing to be found
  Prompt(cache, "abc");  // 1 goes for 3
  Found(cache, "abcd");  // 3 chunks
  Found(cache, "ax");    // an earlier one began so
  Found(cache, "x");     // none did
  Prompt(cache, "y");    // for 2 or 3: one of them
  const PrefixCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.hit_tokens, 3 * kChunk);
  EXPECT_EQ(stats.lost_misses, 1);
  EXPECT_EQ(stats.new_misses, 3);
  EXPECT_EQ(stats.puts, 4);
  EXPECT_EQ(stats.used_evictions + stats.unused_evictions, 2);
  EXPECT_EQ(stats.states, 2);
  EXPECT_EQ(stats.bytes, 2 * kEntryBytes);
  EXPECT_EQ(stats.max_bytes, 2 * kEntryBytes);
}

// Prompts that begin alike, now and then a large state, little room.
TEST(PrefixCacheTest, NeverExceedsItsBudgetAndNeverMistakesAPrompt) {
  std::mt19937 random(17);
  PrefixCache cache(WithRoomFor(9));
  for (int i = 0; i < 20'000; ++i) {
    std::string letters(1 + random() % 12, 'a');
    for (char& letter : letters) letter += random() % 8 == 0;
    const std::string owner(1, static_cast<char>('A' + random() % 2));
    const auto keys = KeysOf(cache, letters, owner);
    const auto found = cache.Find(keys);
    size_t n = 0;
    if (found) {
      n = found->num_chunks;
      const std::string said = owner + letters.substr(0, n);
      ASSERT_EQ(found->state->substr(0, said.size() + 1), said + '.');
    }
    while (++n <= keys.size()) {
      if (!cache.Wants(keys, n)) continue;
      std::string state = owner + letters.substr(0, n) + '.';
      state.resize(random() % (10 * kStateBytes) + state.size());
      cache.Put(keys, n, std::make_shared<std::string>(std::move(state)));
      ASSERT_LE(cache.stats().bytes, cache.stats().max_bytes);
    }
  }
  const PrefixCache::Stats stats = cache.stats();
  EXPECT_GT(stats.hits, 0);
  EXPECT_GT(stats.used_evictions, 0);
  EXPECT_GT(stats.unused_evictions, 0);
  EXPECT_EQ(stats.puts - stats.used_evictions - stats.unused_evictions,
            stats.states);
}

TEST(PrefixCacheTest, MayBeUsedFromSeveralThreads) {
  PrefixCache cache(WithRoomFor(4));
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 300; ++i) {
        Prompt(cache, {'a', static_cast<char>('a' + t), static_cast<char>(i)});
        EXPECT_LE(cache.stats().bytes, 4 * kEntryBytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace flash
