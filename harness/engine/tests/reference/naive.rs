//! Operators by their definitions, element by element.

use zoo_graph::ops::{Conv2D, Lrn, Window};

/// A convolution without bias, seven loops deep.
pub fn conv(op: &Conv2D, [n, c, h, w]: [usize; 4], x: &[f64], o: usize, filters: &[f64]) -> Vec<f64> {
    let Window { kernel: [kh, kw], stride, pad, dilation, .. } = op.window;
    let [oh, ow] = op.window.output(h, w).unwrap();
    let (per_group, out_per_group) = (c / op.groups, o / op.groups);
    let mut y = Vec::new();
    for (image, out, i, j) in indices([n, o, oh, ow]) {
        let mut sum = 0.0;
        for (channel, r, s) in (0..per_group).flat_map(|ch| (0..kh * kw).map(move |t| (ch, t / kw, t % kw))) {
            let row = (i * stride[0] + r * dilation[0]).checked_sub(pad[0]).filter(|row| *row < h);
            let column = (j * stride[1] + s * dilation[1]).checked_sub(pad[2]).filter(|column| *column < w);
            if let (Some(row), Some(column)) = (row, column) {
                let input = out / out_per_group * per_group + channel;
                sum += x[((image * c + input) * h + row) * w + column]
                    * filters[((out * per_group + channel) * kh + r) * kw + s];
            }
        }
        y.push(sum);
    }
    y
}

/// Maximum pool, by a padded copy of each map.
pub fn max_pool(window: &Window, [n, c, h, w]: [usize; 4], x: &[f64]) -> Vec<f64> {
    let [oh, ow] = window.output(h, w).unwrap();
    let at = |image: usize, channel: usize, row: usize, column: usize| {
        let (row, column) = (row.wrapping_sub(window.pad[0]), column.wrapping_sub(window.pad[2]));
        let inside = row < h && column < w;
        if inside { x[((image * c + channel) * h + row) * w + column] } else { f64::NEG_INFINITY }
    };
    let taps = || indices([1, 1, window.kernel[0], window.kernel[1]]);
    let greatest = |(image, channel, i, j): (usize, usize, usize, usize)| {
        let row = |r: usize| i * window.stride[0] + r * window.dilation[0];
        let column = |s: usize| j * window.stride[1] + s * window.dilation[1];
        taps().map(|(_, _, r, s)| at(image, channel, row(r), column(s))).fold(f64::NEG_INFINITY, f64::max)
    };
    indices([n, c, oh, ow]).map(greatest).collect()
}

/// Local response normalisation, by `torch.nn.functional.local_response_norm`'s own steps: squares, padded by `size /
/// 2` zero channels in front and `(size - 1) / 2` behind, averaged over `size`.
pub fn lrn(op: &Lrn, [n, c, h, w]: [usize; 4], x: &[f64]) -> Vec<f64> {
    let squares = |image: usize, padded: usize, p: usize| {
        let channel = padded.wrapping_sub(op.size / 2);
        if channel < c { x[(image * c + channel) * h * w + p].powi(2) } else { 0.0 }
    };
    let normalise = |(image, channel, p, _): (usize, usize, usize, usize)| {
        let mean = (channel..channel + op.size).map(|j| squares(image, j, p)).sum::<f64>() / op.size as f64;
        x[(image * c + channel) * h * w + p] / (op.k + op.alpha * mean).powf(op.beta)
    };
    indices([n, c, h * w, 1]).map(normalise).collect()
}

/// All index quadruples below these extents, the last running fastest.
pub fn indices([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..a * b * c * d).map(move |i| (i / d / c / b, i / d / c % b, i / d % c, i % d))
}
