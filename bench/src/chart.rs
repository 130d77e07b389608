//! Charts, as SVG that both light and dark pages can show.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::outcome::Series;

const SIZE: (u32, u32) = (760, 380);
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(110, 110, 110),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub struct Chart<'a> {
    pub title: &'a str,
    pub x: &'a str,
    pub y: &'a str,
    pub series: &'a [Series],
}

impl Chart<'_> {
    fn bounds(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let all = self.series.iter().flat_map(|series| &series.points).map(of);
        all.fold((f64::INFINITY, 0.0), |(least, most), figure| (figure.min(least), figure.max(most)))
    }

    /// The title, and room for the axes.
    fn canvas<'a, 'p>(&self, area: &'a Area<'p>) -> ChartBuilder<'a, 'a, SVGBackend<'p>> {
        let mut canvas = ChartBuilder::on(area);
        canvas.caption(self.title, ("sans-serif", 18)).margin(12).x_label_area_size(42).y_label_area_size(56);
        canvas
    }

    /// Lines through points, both axes logarithmic: for what grows over decades.
    pub fn lines(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let (x, y) = (self.bounds(|point| point.0), self.bounds(|point| point.1));
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = self
            .canvas(&area)
            .build_cartesian_2d((x.0 * 0.8..x.1 * 1.25).log_scale(), (y.0 * 0.7..y.1 * 1.4).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|x| short(*x))
            .draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(series.points.iter().copied(), style).point_size(4))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        Ok(area.present()?)
    }

    /// A dot for each point.
    pub fn dots(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let (x, y) = (self.bounds(|point| point.0), self.bounds(|point| point.1));
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = self.canvas(&area).build_cartesian_2d(0.0..x.1, 0.0..y.1 * 1.1)?;
        chart.configure_mesh().light_line_style(WHITE).x_desc(self.x).y_desc(self.y).draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS) {
            chart
                .draw_series(series.points.iter().map(|&point| Circle::new(point, 2, colour.filled())))?
                .label(&series.name)
                .legend(move |(x, y)| Circle::new((x + 9, y), 3, colour.filled()));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        Ok(area.present()?)
    }
}

/// A bar for each figure.
pub fn bars(path: &Path, title: &str, unit: &str, figures: &[(String, f64)]) -> Result<(), Box<dyn Error>> {
    let most = figures.iter().fold(0.0, |most: f64, (_, figure)| most.max(*figure));
    let area = SVGBackend::new(path, (SIZE.0, 60 + 34 * figures.len() as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new(format!("{title}, {unit}"), (16, 14), text(18)))?;
    for (at, (name, figure)) in figures.iter().enumerate() {
        let top = 48 + 34 * at as i32;
        let width = (figure / most * 360.0) as i32;
        area.draw(&Text::new(name.clone(), (16, top + 4), text(14)))?;
        area.draw(&Rectangle::new([(270, top), (270 + width.max(1), top + 22)], COLOURS[at % COLOURS.len()].filled()))?;
        area.draw(&Text::new(short(*figure), (278 + width, top + 4), text(14)))?;
    }
    Ok(area.present()?)
}

/// A figure in a few characters.
fn short(figure: f64) -> String {
    match figure {
        _ if figure >= 1e6 => format!("{:.3}M", figure / 1e6).replace(".000", ""),
        _ if figure >= 1e4 => format!("{:.0}k", figure / 1e3),
        _ if figure >= 100.0 => format!("{figure:.0}"),
        _ => format!("{figure:.2}"),
    }
}
