/* One update of LARS, LAMB and EMA, each tensor in as few passes over memory as the formula allows: what bench/optim.py
   compares torch's kernels with. Options are those of the benchmark. */
#include <math.h>

#define BLOCK 4096    /* numbers that are summed as floats before the sum goes on as a double */
#define CACHED 262144 /* numbers whose direction is kept for the second pass of LAMB instead of computed again */

static double squares(const float *x, long n) {
  double sum = 0;
  for (long begin = 0; begin < n; begin += BLOCK) {
    long end = begin + BLOCK < n ? begin + BLOCK : n;
    float part = 0;
    for (long i = begin; i < end; i++) part += x[i] * x[i];
    sum += part;
  }
  return sum;
}

void ema(int count, float **averages, float **params, const long *sizes) {
  for (int t = 0; t < count; t++) {
    float *restrict mean = averages[t];
    const float *restrict w = params[t];
    for (long i = 0; i < sizes[t]; i++) mean[i] += 0.001f * (w[i] - mean[i]);
  }
}

void lars(int count, float **params, float **grads, float **buffers, const long *sizes) {
  const float lr = 0.1f, momentum = 0.9f, decay = 1e-4f, eta = 0.001f, eps = 1e-8f;
  for (int t = 0; t < count; t++) {
    float *restrict w = params[t], *restrict buffer = buffers[t];
    const float *restrict g = grads[t];
    float weight = sqrt(squares(w, sizes[t])), length = sqrt(squares(g, sizes[t]));
    float rate = weight > 0 && length > 0 ? lr * eta * weight / (length + decay * weight + eps) : lr;
    for (long i = 0; i < sizes[t]; i++) {
      buffer[i] = momentum * buffer[i] + rate * (g[i] + decay * w[i]);
      w[i] -= buffer[i];
    }
  }
}

void lamb(int count, float **params, float **grads, float **first, float **second, const long *sizes, float *room) {
  const float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-6f, decay = 0.01f;
  const float correct1 = 1 / (1 - beta1), correct2 = 1 / sqrtf(1 - beta2); /* of the first step */
  double whole = 0;
  for (int t = 0; t < count; t++) whole += squares(grads[t], sizes[t]);
  const float shrink = whole > 1 ? 1 / sqrt(whole) : 1;
  for (int t = 0; t < count; t++) {
    float *restrict w = params[t], *restrict m = first[t], *restrict v = second[t], *restrict kept = room;
    const float *restrict g = grads[t];
    const int keeps = sizes[t] <= CACHED;
    double weight = 0, length = 0;
    for (long begin = 0; begin < sizes[t]; begin += BLOCK) {
      long end = begin + BLOCK < sizes[t] ? begin + BLOCK : sizes[t];
      float weights = 0, lengths = 0;
      for (long i = begin; i < end; i++) {
        float grad = g[i] * shrink;
        m[i] += (1 - beta1) * (grad - m[i]);
        v[i] += (1 - beta2) * (grad * grad - v[i]);
        float direction = m[i] * correct1 / (sqrtf(v[i]) * correct2 + eps) + decay * w[i];
        weights += w[i] * w[i];
        lengths += direction * direction;
        if (keeps) kept[i] = direction;
      }
      weight += weights, length += lengths;
    }
    float rate = weight > 0 && length > 0 ? lr * sqrt(weight / length) : lr;
    if (keeps)
      for (long i = 0; i < sizes[t]; i++) w[i] -= rate * kept[i];
    else
      for (long i = 0; i < sizes[t]; i++) w[i] -= rate * (m[i] * correct1 / (sqrtf(v[i]) * correct2 + eps) + decay * w[i]);
  }
}
