// SPDX-License-Identifier: Apache-2.0
// Problem: parsing, validation sentences, FLOP counting.
#include "generator/core/problem/problem.hpp"

#include <gtest/gtest.h>

#include <set>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/language/user_program.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

std::string refusal(const std::string& text) {
  return testing::error_text([&] { parse_problem(text); });
}

TEST(Problem, TextRoundTrips) {
  for (const char* text :
       {"dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=causal_bottom_right",
        "dtype=fp16,head_dim_qk=192,head_dim_v=128,heads=4/"
        "4,batch=1,seqlen_q=7,seqlen_kv=300,mask=none,window=128:-",
        "dtype=fp32,head_dim=16,heads=7/"
        "1,batch=0,seqlen=0,mask=causal_top_left,window=0:0,scale=0.25",
        "dtype=e4m3,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=none",
        "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=72,heads=4/"
        "4,batch=1,seqlen=9,mask=none,window=5:-,accuracy=fast,v_layout=transposed,"
        "scale_block_q=16,scale_block_kv=65536,scale=0.5",
        "op=quantise,dtype=fp32,dtype_o=e5m2,head_dim=64,heads=4/"
        "4,batch=1,seqlen=9,mask=none,v_layout=transposed,scale_block_q=128,"
        "scale_block_kv=128,rotation=hadamard"}) {
    const Problem problem = parse_problem(text);
    EXPECT_EQ(to_text(problem), text);
    EXPECT_EQ(parse_problem(to_text(problem)), problem);
  }
}

TEST(Problem, ASpecIsWrittenInTheKeysOfAProblem) {
  const std::string rest = "mask=causal_bottom_right,window=128:-";
  const Problem problem =
      parse_problem("dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=32/8,seqlen=64," + rest);
  EXPECT_EQ(to_problem_text(spec_of(problem)),
            "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=4/1," + rest);
  EXPECT_EQ(to_text(spec_of(parse_problem(to_problem_text(spec_of(problem)) + ",seqlen=64"))),
            to_text(spec_of(problem)));
}

TEST(Problem, SpacesAroundCommasMeanNothing) {
  EXPECT_EQ(parse_problem(" dtype=fp16, head_dim=64 ,heads=4,  seqlen=8 "),
            parse_problem("dtype=fp16,head_dim=64,heads=4,seqlen=8"));
  EXPECT_NE(refusal("seqlen=8, ,batch=1").find("has no '='"), std::string::npos);
  EXPECT_NE(refusal("seqlen = 8").find("\"seqlen \""), std::string::npos);
}

struct Bad {
  const char* text;
  std::vector<const char*> mentions;
};

// Returns `text` completed by the fields of a whole problem that it does not set.
std::string whole(const std::string& text) {
  const auto has = [&](const std::string& key) {
    return ("," + text).find("," + key) != std::string::npos;
  };
  std::string more;
  if (!has("heads=")) more += ",heads=1";
  if (!has("head_dim")) more += ",head_dim=128";
  if (!has("seqlen")) more += ",seqlen=8";
  return text.empty() ? more.substr(1) : text + more;
}

void expect_refusals(const std::vector<Bad>& table) {
  for (const Bad& bad : table) {
    const std::string message = refusal(bad.text);
    for (const char* mention : bad.mentions)
      EXPECT_NE(message.find(mention), std::string::npos) << bad.text << " -> " << message;
  }
}

// The parser must take each word that the program's help lists for a key, and no other word.
TEST(Problem, KeysTakeExactlyTheWordsInTheHelp) {
  std::set<std::string> names;
  for (const ProblemKey& key : problem_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.meaning.empty()) << key.name;
    const bool lists_words = key.accepted.find(", ") != std::string::npos;
    std::string rest = key.accepted;
    while (lists_words && !rest.empty()) {
      const size_t comma = rest.find(", ");
      const std::string message = refusal(whole(key.name + "=" + rest.substr(0, comma)));
      EXPECT_EQ(message.find(" is \"" + rest.substr(0, comma) + "\"; must be"), std::string::npos)
          << message;
      rest = comma == std::string::npos ? "" : rest.substr(comma + 2);
    }
    EXPECT_NE(refusal(key.name + "=no such word").find("\"no such word\""), std::string::npos)
        << key.name;
  }
  EXPECT_GT(names.size(), 15u);
}

TEST(Problem, RefusesWithArgumentValueAndAccepted) {
  std::vector<Bad> table{
      {"head_dim=100", {"head_dim_qk", "100", "a multiple of 8 from 16 to 576"}},
      {"head_dim_qk=576,head_dim_v=520", {"head_dim_v is 520", "a multiple of 8 from 16 to 512"}},
      {"head_dim=584", {"head_dim_qk is 584", "a multiple of 8 from 16 to 576"}},
      {"dtype=e4m3,head_dim_qk=64,head_dim_v=264",
       {"head_dim_v is 264", "a multiple of 8 from 16 to 256 with 8-bit operands"}},
      {"heads=30/8", {"num_heads_q is 30", "num_heads_kv is 8", "divide"}},
      {"heads=4/8", {"num_heads_kv is 8", "1 to num_heads_q (4)"}},
      {"heads=0", {"num_heads_q is 0"}},
      {"seqlen=-1", {"seqlen_q is -1", "0 to"}},
      {"batch=-2", {"batch is -2"}},
      {"batch=2147418111,heads=65536,seqlen=2147418111",
       {"batch is 2147418111", "65536 heads", "2^50"}},
      {"scale=nan", {"softmax_scale is nan", "finite"}},
      {"scale=-1", {"softmax_scale is -1"}},
      {"dtype=float8", {"dtype is \"float8\"", "fp32, bf16, fp16"}},
      {"dtype=bf16,dtype_o=fp16", {"dtype_o is fp16 and dtype_q is bf16", "must be equal"}},
      {"mask=bottom", {"mask is \"bottom\"", "causal_top_left"}},
      {"window=5", {"window is \"5\"", "left:right", "127:0 for 128 causal keys"}},
      {"batch=2 seqlen=8", {"part is \"batch=2 seqlen=8\"", "must be separated by commas"}},
      {"mask=causal right", {"mask is \"causal right\"", "causal_top_left"}},
      {"seqlen=8x", {"seqlen is \"8x\"", "integer"}},
      {"colour=red", {"problem key is \"colour\"", "head_dim"}},
      {"seqlen", {"has no '='"}},
  };
  std::vector<std::string> texts;
  for (const Bad& bad : table) texts.push_back(whole(bad.text));
  for (size_t i = 0; i < table.size(); ++i) table[i].text = texts[i].c_str();
  expect_refusals(table);
}

TEST(Problem, RefusesGradientsOfMissingFeatures) {
  const auto of = [](const std::string& rest) {
    return refusal("op=attention_backward,head_dim=64,heads=2,seqlen=8," + rest);
  };
  const auto expect = [](const std::string& found, const char* sentence) {
    EXPECT_NE(found.find(sentence), std::string::npos) << found;
  };
  expect(of("score_gradient=bias"),
         "score_gradient is bias, but the problem has no bias: must be none");
  expect(of("bias=bf16,score_gradient=sinks"), "but the problem has no sinks: must be none");
  expect(of("sinks=bf16,score_gradient=sinks,repeats=b"),
         "repeats is b; for sinks it must be letters of none");
  expect(of("alibi=1,score_gradient=alibi,repeats=bq"),
         "repeats is bq; for alibi it must be letters of bh");
  expect(of("bias=bf16,score_gradient=bias,repeats=kq"), "repeats is \"kq\"; must be none");
  expect(of("bias=bf16,score_gradient=bias,gradients=q"),
         "gradients is q and score_gradient is bias; give only one of them");
  expect(of("bias=bf16,score_gradient=bias,accumulate=1"),
         "accumulate is 1 and score_gradient is bias");
  expect(of("repeats=b"), "repeats is b and score_gradient is none");
  expect(of("score_gradient=load"), "score_gradient is load, but there is no score_mod");
  expect(of("bias=bf16,score_gradient=bias,load=1"), "load is 1 and score_gradient is bias");
  const std::string program =
      "score_mod=" + to_text(read_user_program("// capture a: fp32[1]\nreturn score * a[head];",
                                               score::Kind::kScore, "score_mod")
                                 .digest);
  expect(of(program + ",score_gradient=load,load=1"), "load is 1; score_mod has 1 loads of floats");
  EXPECT_EQ(of(program + ",score_gradient=load,repeats=bhqk"), "accepted");
  EXPECT_EQ(of(program + ",score_gradient=load_diagonals,repeats=h"), "accepted");
  expect(refusal("head_dim=64,heads=2,seqlen=8,bias=bf16,score_gradient=bias"),
         "score_gradient is bias; op prefill has none");
  expect(refusal("head_dim=64,heads=2,seqlen=8,accumulate=1"),
         "accumulate is 1; op prefill has no gradients");
  for (const char* op : {"prefill", "attention_kvcache", "merge"})
    EXPECT_EQ(refusal(std::string("head_dim=64,heads=2,seqlen=8,deterministic=1,op=") + op),
              std::string("deterministic is 1; op ") + op +
                  " has no gradients, and always gives the same bits: must be 0");
  expect(of("deterministic=2"), "deterministic is \"2\"");
  EXPECT_EQ(of("bias=bf16,score_gradient=bias,repeats=bhqk"), "accepted");
  EXPECT_EQ(of("accumulate=1"), "accepted");
  EXPECT_EQ(of("accumulate=1,deterministic=1"), "accepted");
  EXPECT_EQ(of("bias=bf16,score_gradient=bias,deterministic=1"), "accepted");
}

// A kernel that adds in any order may win if equal bits are not required, so both kinds have
// separate winners. Texts without the field stay unchanged.
TEST(Problem, DeterministicIsInTheTextOfASpecThatSetsIt) {
  const std::string text =
      "op=attention_backward,dtype=bf16,head_dim=64,heads=4/4,batch=1,seqlen=8,mask=none";
  const Problem plain = parse_problem(text), asked = parse_problem(text + ",deterministic=1");
  EXPECT_EQ(to_text(plain), text);
  EXPECT_EQ(to_text(asked), text + ",deterministic=1");
  EXPECT_EQ(parse_problem(text + ",deterministic=0"), plain);
  EXPECT_FALSE(spec_of(asked) == spec_of(plain));
  EXPECT_EQ(to_text(spec_of(asked)), to_text(spec_of(plain)) + ",deterministic=1");
}

// A missing length would be read as 0, and any result of an empty problem is right.
TEST(Problem, HeadsHeadDimsAndLengthsMustBeGiven) {
  expect_refusals({
      {"", {"no heads", "heads=Q/KV"}},
      {"dtype=fp32,head_dim=64,seqlen=8", {"no heads"}},
      {"dtype=fp32,heads=4,seqlen=8", {"no head_dim_qk", "head_dim=D"}},
      {"heads=4,head_dim_qk=64,seqlen=8", {"no head_dim_v"}},
      {"dtype=fp32,head_dim=64,heads=4", {"no seqlen_q", "seqlen=N"}},
      {"head_dim=64,heads=4,seqlen_q=8", {"no seqlen_kv", "seqlen_q=N,seqlen_kv=N"}},
  });
  EXPECT_EQ(parse_problem("head_dim=64,heads=4,seqlen=0").seqlen_q, 0) << "an explicit 0 is valid";
  EXPECT_EQ(parse_problem("head_dim=64,heads=4", TextLengths::kOptional).seqlen_q, 0);
}

TEST(Problem, NoFieldIsSetTwice) {
  expect_refusals({
      {"head_dim=128,head_dim=64,heads=4,seqlen=8", {"head_dim is in the problem twice"}},
      {"head_dim=128,head_dim_qk=128,heads=4,seqlen=8",
       {"head_dim and head_dim_qk both set head_dim_qk"}},
      {"head_dim_v=128,head_dim=128,heads=4,seqlen=8",
       {"head_dim_v and head_dim both set head_dim_v"}},
      {"head_dim=64,heads=4,seqlen=8,seqlen_kv=9", {"seqlen and seqlen_kv both set seqlen_kv"}},
      {"head_dim=64,heads=4,seqlen=8,seqlen=8", {"seqlen is in the problem twice"}},
      {"head_dim=64,heads=4,heads=4/2,seqlen=8", {"heads is in the problem twice"}},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,scale_block=16,scale_block_q=16",
       {"scale_block and scale_block_q both set scale_block_q"}},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,accuracy=fast,accuracy=fast",
       {"accuracy is in the problem twice"}},
  });
}

TEST(Problem, OrderAndSpacesDoNotMatter) {
  const Problem problem = parse_problem(
      "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=64,heads=4/2,seqlen=8,mask=causal_top_left");
  EXPECT_EQ(parse_problem(" seqlen=8, dtype_o=fp16,\tmask=causal_top_left, dtype_kv=e5m2 , "
                          "heads=4/2,\n head_dim=64, dtype=e4m3 "),
            problem);
}

TEST(Problem, EightBitsHaveDefaultsAndShorthands) {
  const Problem p = parse_problem("dtype=e4m3,head_dim=128,heads=1,seqlen=8,scale_block=128");
  EXPECT_EQ(p.dtype_kv, Dtype::kE4m3);
  EXPECT_EQ(p.dtype_o, Dtype::kBf16);
  EXPECT_EQ(p.fp8.accuracy, Accuracy::kAccurate);
  EXPECT_EQ(p.fp8.scale_block_q, 128);
  EXPECT_EQ(p.fp8.scale_block_kv, 128);
  EXPECT_EQ(parse_problem("dtype=e4m3,dtype_o=fp32,head_dim=128,heads=1,seqlen=8").dtype_o,
            Dtype::kFp32);
  const Problem wide = parse_problem(
      "op=attention_kvcache,dtype=bf16,dtype_kv=int8,dtype_o=fp32,head_dim=128,heads=1,seqlen=8");
  EXPECT_NO_THROW(validate(wide));
  EXPECT_EQ(parse_problem(to_text(wide)).dtype_o, Dtype::kFp32);
  EXPECT_DOUBLE_EQ(operand_bytes(p), 8 * 128 * (1 + 1 + 1 + 2));
}

// K and V count as far as rows see them, and latent V not at all.
TEST(Problem, WorkOverCachesIsWhatRowsSee) {
  const auto work = [](const std::string& text) {
    const Problem p = parse_problem(
        "op=attention_kvcache,dtype=bf16,heads=8/2,batch=3,seqlen_kv=1000,page_size=16," + text);
    const double rows = static_cast<double>(3 * p.seqlen_q * 8);
    const double of_rows = rows * 2 * (p.head_dim_qk + p.head_dim_v);  // q and o
    return std::pair{(operand_bytes(p) - of_rows) / (3 * 2 * 2),
                     useful_flops(p) / (2.0 * 3 * 8 * (p.head_dim_qk + p.head_dim_v))};
  };
  using Work = std::pair<double, double>;  // elements of K and V per head, pairs of row and key
  EXPECT_EQ(work("seqlen_q=1,head_dim=64"), Work(1000 * 128, 1000));
  EXPECT_EQ(work("seqlen_q=1,head_dim=64,window=99:-"), Work(100 * 128, 100));
  EXPECT_EQ(work("seqlen_q=3,head_dim=64,window=99:-,mask=causal_bottom_right"),
            Work(102 * 128, 300));
  EXPECT_EQ(work("seqlen_q=1000,head_dim=64,mask=causal_bottom_right"), Work(1000 * 128, 500500));
  EXPECT_EQ(work("seqlen_q=2,head_dim=64,key_indices=places,listed_keys=50"), Work(100 * 128, 100));
  EXPECT_EQ(work("seqlen_q=1,head_dim_qk=576,head_dim_v=512,v_in_k=1"), Work(1000 * 576, 1000));
}

// Each list counts as full; with values in keys there is no dv.
TEST(Problem, GradientsOverListsCountEntries) {
  const auto problem = [](const std::string& text) {
    return parse_problem("op=attention_backward,heads=8/2,batch=3,seqlen_q=5,seqlen_kv=1000," +
                         text);
  };
  const Problem p =
      problem("head_dim_qk=576,head_dim_v=512,v_in_k=1,key_indices=positions,listed_keys=50");
  EXPECT_DOUBLE_EQ(useful_flops(p), 2.0 * (3 * 576 + 2 * 512) * 3 * 5 * 8 * 50);
  EXPECT_FALSE(operands_of(p).has(Role::kDv));
  EXPECT_TRUE(operands_of(problem("head_dim=64,key_indices=positions")).has(Role::kDv));
  EXPECT_EQ(to_text(canonical(problem("head_dim=64,key_indices=positions"))),
            to_text(canonical(problem("head_dim=64,key_indices=positions,listed_keys=1000"))));
}

TEST(Problem, RefusesWhatGradientsOverListsDoNotTake) {
  const std::string text = "op=attention_backward,head_dim=64,heads=4/2,seqlen=64,";
  for (const auto& [more, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"key_indices=places", "key_indices is places; op attention_backward has no cache"},
           {"key_indices=positions,window=9:9", "must be mask none without a window"},
           {"key_indices=positions,gradients=qk", "gradients is qk; "},
           {"key_indices=positions,accumulate=1", "accumulate is 1; "},
           {"key_indices=positions,dropout=0.1", "dropout is 0.1; "},
           {"key_indices=positions,alibi=1", "alibi is given; "},
           {"key_indices=positions,sinks=fp32", "sinks is given; "},
           {"v_in_k=1", "v_in_k is 1 and key_indices is none; "},
           {"listed_keys=9", "listed_keys is 9 and key_indices is none; "}}) {
    const std::string found = refusal(text + more);
    EXPECT_NE(found.find(sentence), std::string::npos) << more << ": " << found;
  }
}

TEST(Problem, RefusesWhatEightBitOperandsDoNotServe) {
  const std::vector<Bad> table{
      {"dtype=e5m2", {"dtype_q is e5m2", "must be e4m3"}},
      {"dtype=bf16,dtype_kv=e4m3", {"dtype_q is bf16", "must be e4m3"}},
      {"dtype=e4m3,dtype_kv=bf16", {"dtype_kv is bf16", "e4m3 or e5m2"}},
      {"dtype=e4m3,dtype_o=e4m3", {"dtype_o is e4m3", "bf16 or fp16"}},
      {"dtype=bf16,accuracy=fast", {"accuracy=fast", "8-bit operands", "dtype_q is bf16"}},
      {"dtype=bf16,accuracy=split", {"accuracy=split", "accuracy for fp32 too"}},
      {"dtype=e4m3,accuracy=split", {"accuracy is split", "accurate or fast"}},
      {"dtype=fp32,accuracy=split,v_layout=transposed", {"\"v_layout=transposed\""}},
      {"dtype=fp16,v_layout=transposed", {"v_layout=transposed", "8-bit operands"}},
      {"dtype=fp32,scale_block=64", {"scale_block_q=64", "8-bit operands"}},
      {"dtype=e4m3,accuracy=exact", {"accuracy is \"exact\"", "accurate or fast"}},
      {"dtype=e4m3,v_layout=columns", {"v_layout is \"columns\"", "rows or transposed"}},
      {"dtype=e4m3,scale_block=100", {"scale_block_q is 100", "a multiple of 16"}},
      {"dtype=e4m3,scale_block_kv=-16", {"scale_block_kv is -16", "a multiple of 16"}},
      {"dtype=e4m3,scale_block_q=65552", {"scale_block_q is 65552", "up to 65536"}},
      {"dtype=e4m3,scale_block=x", {"scale_block is \"x\"", "integer"}},
      {"dtype=e4m3,rotation=fourier", {"rotation is \"fourier\"", "none or hadamard"}},
      {"dtype=e4m3,rotation=hadamard", {"rotation is hadamard", "quantise op rotates"}},
      {"op=decode", {"op is \"decode\"", "prefill or quantise"}},
      {"op=attention_kvcache,dtype=bf16,dtype_o=fp16", {"dtype_o is fp16", "and o fp32"}},
      {"op=append_kv,dtype=bf16,dtype_o=fp32", {"dtype_o is fp32", "the same for q, k, v and o"}},
      {"op=quantise,dtype=e4m3,dtype_o=e4m3", {"dtype is e4m3", "bf16, fp16 or fp32"}},
      {"op=quantise,dtype=bf16", {"dtype_o is bf16", "e4m3 or e5m2"}},
      {"op=quantise,dtype_o=e4m3,head_dim_qk=128,head_dim_v=64",
       {"head_dim_v is 64", "head_dim_qk, 128"}},
      {"op=quantise,dtype_o=e4m3,heads=4/2", {"num_heads_kv is 2", "num_heads_q, 4"}},
      {"op=quantise,dtype_o=e4m3,seqlen_q=9,seqlen_kv=8", {"seqlen_kv is 8", "seqlen_q, 9"}},
      {"op=quantise,dtype_o=e4m3,scale_block_q=32", {"scale_block_kv is 0", "scale_block_q, 32"}},
      {"op=quantise,dtype_o=e4m3,mask=causal_top_left", {"no mask"}},
      {"op=quantise,dtype_o=e4m3,window=3:-", {"no window"}},
      {"op=quantise,dtype_o=e4m3,accuracy=fast", {"accuracy is fast"}},
      {"op=quantise,dtype=fp32,dtype_o=e4m3,accuracy=split", {"accuracy is split"}},
      {"op=quantise,dtype_o=e4m3,scale=0.5", {"no softmax"}},
      {"op=quantise,dtype_o=e4m3,head_dim=80,rotation=hadamard",
       {"head_dim_qk is 80", "powers of two"}},
      {"op=quantise,dtype_o=e4m3,head_dim=-2147483648,rotation=hadamard",
       {"head_dim_qk is -2147483648", "a multiple of 8"}},
  };
  for (const Bad& bad : table) {
    const std::string message = refusal(whole(bad.text));
    for (const char* mention : bad.mentions)
      EXPECT_NE(message.find(mention), std::string::npos) << bad.text << " -> " << message;
  }
}

// Returns the FLOPs by definition, one element at a time.
double flops_by_definition(const Problem& p) {
  const int64_t offset = p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q;
  double visible = 0;
  for (int64_t i = 0; i < p.seqlen_q; ++i)
    for (int64_t j = 0; j < p.seqlen_kv; ++j) {
      const int64_t d = i + offset;
      visible += (p.mask == Mask::kNone || j <= d) &&
                 (p.window_left < 0 || j >= d - p.window_left) &&
                 (p.window_right < 0 || j <= d + p.window_right);
    }
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * visible * static_cast<double>(p.batch) *
         p.num_heads_q;
}

TEST(Problem, CountsVisibleFlops) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"})
    for (const char* window : {"-:-", "3:-", "-:2", "4:1", "0:0"})
      for (const char* lengths : {"seqlen=17", "seqlen_q=5,seqlen_kv=19", "seqlen_q=19,seqlen_kv=5",
                                  "seqlen_q=0,seqlen_kv=4", "seqlen_q=4,seqlen_kv=0"}) {
        const Problem p = parse_problem(std::string("head_dim=128,heads=2,batch=3,") + lengths +
                                        ",mask=" + mask + ",window=" + window);
        EXPECT_DOUBLE_EQ(visible_flops(p), flops_by_definition(p)) << to_text(p);
      }
}

TEST(KernelSpec, RunTimeFactsStayOut) {
  const KernelSpec a = spec_of(parse_problem("head_dim=64,heads=8/2,batch=1,seqlen=10"));
  const KernelSpec b =
      spec_of(parse_problem("head_dim=64,heads=32/8,batch=5,seqlen_q=1,seqlen_kv=99,scale=2"));
  EXPECT_EQ(to_text(a), to_text(b));
  EXPECT_NE(to_text(a), to_text(spec_of(parse_problem("head_dim=64,heads=8/4,seqlen=10"))));
}

TEST(KernelSpec, EachOptionOf8BitOperandsIsCompiledIn) {
  std::set<std::string> texts;
  for (const char* option : {"", ",dtype_kv=e5m2", ",dtype_o=fp16", ",accuracy=fast",
                             ",v_layout=transposed", ",scale_block_q=16", ",scale_block_kv=16"}) {
    const Problem p =
        parse_problem(std::string("dtype=e4m3,head_dim=128,heads=1,seqlen=8") + option);
    EXPECT_TRUE(texts.insert(to_text(spec_of(p))).second) << option;
    EXPECT_TRUE(is_8_bit(spec_of(p)));
    EXPECT_EQ(problem_of(spec_of(p), shape_of(p)), p) << option;
  }
  const Problem quantise =
      parse_problem("op=quantise,dtype_o=e4m3,head_dim=64,heads=1,seqlen=8,rotation=hadamard");
  EXPECT_TRUE(is_8_bit(spec_of(quantise)));
  EXPECT_EQ(problem_of(spec_of(quantise), shape_of(quantise)), quantise);
}

TEST(KernelSpec, RightWindowOfCausalIsTheDiagonal) {
  const auto text = [](const char* p) { return to_text(spec_of(parse_problem(whole(p)))); };
  EXPECT_EQ(text("seqlen=8,mask=causal_top_left,window=4:0"),
            text("seqlen=8,mask=causal_top_left,window=4:7"));
  EXPECT_NE(text("seqlen=8,mask=none,window=4:0"), text("seqlen=8,mask=none,window=4:7"));
}

TEST(Shape, BucketsRoundUpToPowersOfTwo) {
  EXPECT_EQ(bucket_of(Shape{2, 1025, 2048, 32, 8}), bucket_of(Shape{2, 2048, 2000, 32, 8}));
  EXPECT_NE(bucket_of(Shape{2, 1024, 2048, 32, 8}), bucket_of(Shape{2, 2048, 2000, 32, 8}));
}

}  // namespace
}  // namespace attune
