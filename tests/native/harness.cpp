// A generated program without Python: run by tests under sanitizers, and on an emulated processor.
//
// Arguments: a file with its inputs, how often it is called, and perhaps a file for what it computes: the state, its
// outputs, and which branches were taken. The first file holds whole numbers (words of the state, words of
// its own memory, inputs and their sizes, outputs and their sizes) and then the state and the inputs. Every array gets
// memory of exactly its size, so that a sanitizer sees the first word beyond it. Prints the sum of all words at the end.
#include <cfloat>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" int run(float* S, float* T, const float* const* in, const int64_t* const* which, float* const* out);
extern "C" int32_t branches, taken[];

static FILE* file;

static int32_t number() {
  int32_t n = 0;
  if (fread(&n, 4, 1, file) != 1) exit(2);
  return n;
}
static float* memory(size_t words) { return (float*)aligned_alloc(64, (words * 4 + 63) / 64 * 64); }
static float* filled(size_t words) {
  float* where = memory(words);
  if (fread(where, 4, words, file) != words) exit(2);
  return where;
}

int main(int count, char** arguments) {
  file = fopen(arguments[1], "rb");
  const int calls = atoi(arguments[2]), state = number(), own = number();
  std::vector<int32_t> sizes[2];
  for (auto& some : sizes) {
    some.resize(number());
    for (auto& size : some) size = number();
  }
  float *S = filled(state), *T = memory(own);
  for (int i = 0; i < own; i++) T[i] = 0;
  std::vector<float*> in, out;
  for (const int size : sizes[0]) in.push_back(filled(size));
  for (const int size : sizes[1]) out.push_back(memory(size));
  const std::vector<int64_t*> which(in.size());  // none: each as it lies
  for (int i = 0; i < calls; i++)
    if (run(S, T, in.data(), which.data(), out.data())) return 3;
  volatile float least = FLT_MIN;
  if (least / 2 == 0) return 4;  // numbers below 1e-38 are zero in the program, not in whoever calls it
  if (count > 3) {
    FILE* found = fopen(arguments[3], "wb");
    fwrite(S, 4, state, found);
    for (size_t i = 0; i < out.size(); i++) fwrite(out[i], 4, sizes[1][i], found);
    fwrite(taken, 4, branches, found);
    if (fclose(found)) return 5;
  }
  uint32_t sum = 0;
  for (int i = 0; i < state; i++) sum += ((uint32_t*)S)[i];
  for (size_t i = 0; i < out.size(); i++)
    for (int j = 0; j < sizes[1][i]; j++) sum += ((uint32_t*)out[i])[j];
  printf("%u\n", sum);
  free(S), free(T);
  for (float* each : in) free(each);
  for (float* each : out) free(each);
}
