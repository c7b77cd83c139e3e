//! Values in a page of metrics in Prometheus' text format.

use anyhow::{Result, ensure};

/// The value of a series, written with all its labels as on the page.
pub fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// The sum of a metric over all series that have these labels, besides others.
///
/// # Errors
///
/// If the page does not describe the metric: without that, a misspelt name would be 0 for ever.
pub fn sum(page: &str, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
    let histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
    let is_described = |name: &str| {
        let has_name =
            |rest: &str| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '));
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).any(has_name)
    };
    let is_known = is_described(name) || histogram.is_some_and(is_described);
    ensure!(is_known, "expected a metric {name}, found none of this name");
    Ok(page.lines().filter_map(|line| value_if_labelled(line, name, labels)).sum())
}

fn value_if_labelled(line: &str, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let (series, value) = line.rsplit_once(' ')?;
    let found = series.strip_prefix(name)?;
    let found = match found {
        "" => found,
        _ => found.strip_prefix('{')?.strip_suffix('}')?,
    };
    let has = |(key, value): &(&str, &str)| {
        found.split(',').any(|one| one == format!("{key}=\"{value}\""))
    };
    labels.iter().all(has).then(|| value.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_whole_name() {
        let page = "# HELP x_total y\nx_total{a=\"b\"} 3\nx_total_more 4\nx_total 5\n";
        assert_eq!(value(page, "x_total"), Some(5.0));
        assert_eq!(value(page, "x_total{a=\"b\"}"), Some(3.0));
        assert_eq!(value(page, "x"), None);
    }

    #[test]
    fn sums_are_over_the_series_with_these_labels() {
        let page = "# TYPE x_total counter\nx_total{family=\"v4\",kind=\"announce\"} 3\n\
                    x_total{family=\"v6\",kind=\"announce\"} 4\n\
                    x_total{family=\"v6\",kind=\"scrape\"} 5\n\
                    # TYPE x_seconds histogram\nx_seconds_sum 0.5\n# TYPE x_errors_total counter\n";
        let sum = |name: &str, labels: &[(&str, &str)]| sum(page, name, labels).ok();
        assert_eq!(sum("x_total", &[("kind", "announce")]), Some(7.0));
        assert_eq!(sum("x_total", &[("kind", "scrape"), ("family", "v6")]), Some(5.0));
        assert_eq!(sum("x_total", &[]), Some(12.0));
        assert_eq!(sum("x_seconds_sum", &[]), Some(0.5));
        assert_eq!(sum("x_errors_total", &[]), Some(0.0));
        assert_eq!(sum("x", &[]), None);
    }
}
